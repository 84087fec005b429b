// SPDX-License-Identifier: Apache-2.0
// A simulated host with berthd on it, and the way a browser reaches its socket: a port that forwards,
// as ssh -L would make one. Programs are taken from BERTH_BIN.
'use strict';

const { execFile, spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const { promisify } = require('node:util');

const BIN = process.env.BERTH_BIN;
const run = promisify(execFile);

// Polls until f() gives something true, and gives that.
async function until(what, f, seconds = 10) {
	const end = Date.now() + seconds * 1000;
	for (;;) {
		const value = await f();
		if (value) return value;
		if (Date.now() > end) throw new Error(`waited ${seconds} s in vain for: ${what}`);
		await new Promise((resolve) => setTimeout(resolve, 20));
	}
}

function freePort() {
	return new Promise((resolve) => {
		const server = net.createServer().listen(0, '127.0.0.1', () => {
			const { port } = server.address();
			server.close(() => resolve(port));
		});
	});
}

// A port of 127.0.0.1 in front of a Unix socket. Knows the requests that went through: "PUT /x 403".
class Forward {
	constructor(socketPath) {
		this.sockets = new Set();
		this.seen = [];
		this.server = net.createServer((near) => {
			const far = net.connect(socketPath);
			const asked = [];
			for (const s of [near, far]) {
				this.sockets.add(s);
				s.on('error', () => {});
				s.on('close', () => {
					this.sockets.delete(s);
					(s === near ? far : near).destroy();
				});
			}
			near.on('data', (data) => {
				for (const m of data.toString('latin1').matchAll(/^([A-Z]+) (\S+) HTTP/gm)) asked.push(`${m[1]} ${m[2]}`);
			});
			far.on('data', (data) => {
				for (const m of data.toString('latin1').matchAll(/^HTTP\/1\.1 (\d+)/gm)) this.seen.push(`${asked.shift()} ${m[1]}`);
			});
			near.pipe(far);
			far.pipe(near);
		});
	}

	async listen() {
		await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
		this.url = `http://localhost:${this.server.address().port}/`;
		return this;
	}

	close() {
		this.server.close();
		for (const s of this.sockets) s.destroy();
	}
}

class Host {
	static async start(root, { sim = [], settings = '', configure = async () => {} } = {}) {
		const host = new Host();
		host.root = root;
		fs.mkdirSync(root, { recursive: true });
		host.dir = path.join(root, 'sim');
		host.sim = spawn(path.join(BIN, 'berth-sim'), ['run', '--root', host.dir, '--nvml-latency', '0', ...sim], {
			stdio: ['ignore', 'pipe', 'inherit'],
		});
		await new Promise((resolve, reject) => {
			host.sim.stdout.once('data', resolve);
			host.sim.once('exit', () => reject(new Error('berth-sim ended')));
		});
		await configure(host);
		host.port = await freePort();
		host.socket = path.join(host.dir, 'berthd.sock');
		host.config = path.join(root, 'berthd.yaml');
		const own = fs.readFileSync(path.join(host.dir, 'berthd.yaml'), 'utf8');
		fs.writeFileSync(host.config, `${own}listen: 127.0.0.1:${host.port}\nreconcile_interval: 500ms\n${settings}`);
		await host.startDaemon();
		host.forward = await new Forward(host.socket).listen();
		return host;
	}

	get url() {
		return this.forward.url;
	}

	get readOnlyUrl() {
		return `http://127.0.0.1:${this.port}/`;
	}

	async startDaemon() {
		const log = fs.openSync(path.join(this.root, 'berthd.log'), 'a');
		this.daemon = spawn(path.join(BIN, 'berthd'), ['--config', this.config], { stdio: ['ignore', log, log] });
		fs.closeSync(log);
		await until('berthd to be ready', async () => (await this.api('GET', '/readyz').catch(() => ({}))).status === 200, 20);
	}

	async end(process, signal) {
		const ended = new Promise((resolve) => process.once('exit', resolve));
		process.kill(signal);
		await ended;
	}

	kill() {
		return this.end(this.daemon, 'SIGKILL');
	}

	ctl(...args) {
		return run(path.join(BIN, 'berth-sim'), ['ctl', '--root', this.dir, ...args]);
	}

	berth(...args) {
		return run(path.join(BIN, 'berth'), ['--socket', this.socket, ...args]);
	}

	// Status and JSON of a request over the socket.
	api(method, target, body) {
		return new Promise((resolve, reject) => {
			const request = http.request({ socketPath: this.socket, method, path: target, agent: false }, (answer) => {
				let text = '';
				answer.on('data', (data) => (text += data));
				answer.on('end', () => resolve({ status: answer.statusCode, json: text ? JSON.parse(text) : null }));
			});
			request.on('error', reject);
			request.end(body && JSON.stringify(body));
		});
	}

	async get(target) {
		return (await this.api('GET', target)).json;
	}

	async claim(name, profile, more) {
		const { status, json } = await this.api('PUT', `/claims/${name}`, { profile: `L40S-${profile}`, ...more });
		if (status !== 201) throw new Error(`claim ${name}: ${status} ${JSON.stringify(json)}`);
		return json;
	}

	async stop() {
		this.forward?.close();
		for (const process of [this.daemon, this.sim]) if (process?.exitCode === null && !process.signalCode) await this.end(process, 'SIGTERM');
	}
}

module.exports = { Host, until };

// SPDX-License-Identifier: Apache-2.0
// @grpc/grpc-js against src/grpc. Messages are plain bytes.
//   node peer.js CHECK SOCKET             one check as a client; exit status 0 when it holds
//   node peer.js serve-BEHAVIOUR SOCKET BACK   serves Registration/Register until stdin ends
"use strict";
const assert = require("assert");
const grpc = require(process.env.GRPC_JS || "@grpc/grpc-js");

const [, , check, socket, back] = process.argv;
const same = (b) => b;
const whole = { "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1 };

function connect(path) {
	return new grpc.Client("unix:" + path, grpc.credentials.createInsecure(), whole);
}

function unary(client, path, message, timeoutMs = 20000) {
	return new Promise((resolve) => {
		client.makeUnaryRequest(path, same, same, message, { deadline: Date.now() + timeoutMs },
			(error, answer) => resolve(error ? error.code : answer));
	});
}

function stream(client, path, message, options = {}) {
	const call = client.makeServerStreamRequest(path, same, same, message, options);
	const got = [];
	call.on("data", (m) => got.push(m));
	const end = new Promise((resolve) => {
		call.on("status", (s) => resolve(s.code));
		call.on("error", () => {});
	});
	const first = new Promise((resolve) => call.once("data", resolve));
	return { call, got, end, first };
}

const checks = {
	async echo(client) {
		for (const size of [0, 1, 70000, 2 << 20]) {
			const message = Buffer.alloc(size, 7);
			assert(message.equals(await unary(client, "/berth.Test/Echo", message)));
		}
	},
	async large(client) {
		assert.equal(await unary(client, "/berth.Test/Echo", Buffer.alloc(5 << 20)), grpc.status.RESOURCE_EXHAUSTED);
		assert.equal((await unary(client, "/berth.Test/Fill", Buffer.from("4194304"))).length, 4 << 20);
		assert.equal(await unary(client, "/berth.Test/Fill", Buffer.from("4194305")), grpc.status.RESOURCE_EXHAUSTED);
		assert.equal((await unary(client, "/berth.Test/Echo", Buffer.from("x"))).toString(), "x");
	},
	async status(client) {
		for (let code = 1; code <= 16; code++)
			assert.equal(await unary(client, "/berth.Test/Fail", Buffer.from(code + " text")), code);
	},
	async unknown(client) {
		assert.equal(await unary(client, "/berth.Test/None", Buffer.alloc(0)), grpc.status.UNIMPLEMENTED);
	},
	async undecodable(client) {
		assert.equal(await unary(client, "/v1beta1.DevicePlugin/Allocate", Buffer.from([255, 255])),
			grpc.status.INVALID_ARGUMENT);
	},
	async deadline(client) {
		assert.equal(await unary(client, "/berth.Test/Hold", Buffer.alloc(0), 300), grpc.status.DEADLINE_EXCEEDED);
	},
	async "stream-deadline"(client) {
		const s = stream(client, "/berth.Test/Watch", Buffer.alloc(0), { deadline: Date.now() + 300 });
		assert.equal(await s.end, grpc.status.DEADLINE_EXCEEDED);
		assert.equal(s.got.length, 1);
	},
	async cancel(client) {
		const s = stream(client, "/berth.Test/Watch", Buffer.alloc(0));
		await s.first;
		s.call.cancel();
		assert.equal(await s.end, grpc.status.CANCELLED);
	},
	async count(client) {
		const s = stream(client, "/berth.Test/Count", Buffer.from("500"));
		assert.equal(await s.end, grpc.status.OK);
		assert.deepEqual(s.got.map(Number), [...Array(500).keys()]);
	},
	async streams(client) {
		const streams = [...Array(50)].map(() => stream(client, "/berth.Test/Watch", Buffer.alloc(0)));
		await Promise.all(streams.map((s) => s.first));
		const answers = await Promise.all([...Array(200).keys()].map(
			(i) => unary(client, "/berth.Test/Echo", Buffer.from("" + i))));
		answers.forEach((a, i) => assert.equal(a.toString(), "" + i));
		streams.forEach((s) => s.call.cancel());
	},
	async plugin(client) {
		const options = await unary(client, "/v1beta1.DevicePlugin/GetDevicePluginOptions", Buffer.alloc(0));
		assert.deepEqual([...options], [8, 1, 16, 1]);
		const s = stream(client, "/v1beta1.DevicePlugin/ListAndWatch", Buffer.alloc(0));
		assert((await s.first).includes("fake-2"));
		s.call.cancel();
	},
};

const behaviours = {
	"serve-ok": (call, done) => done(null, Buffer.from("ok")),
	"serve-error": (call, done) => done({ code: grpc.status.FAILED_PRECONDITION, details: "not now" }),
	"serve-hang": () => {},
	"serve-dial": async (call, done) => {
		done(null, await unary(connect(back), "/v1beta1.DevicePlugin/GetDevicePluginOptions", Buffer.alloc(0)));
	},
};

function serve(behaviour) {
	const server = new grpc.Server();
	server.addService({
		Register: {
			path: "/v1beta1.Registration/Register", requestStream: false, responseStream: false,
			requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
		},
	}, { Register: behaviour });
	server.bindAsync("unix:" + socket, grpc.ServerCredentials.createInsecure(), (error) => {
		if (error)
			throw error;
		console.log("ready");
	});
	process.stdin.on("end", () => process.exit(0)).resume();
}

if (behaviours[check]) {
	serve(behaviours[check]);
} else {
	const client = connect(socket);
	checks[check](client).then(() => process.exit(0), (e) => {
		console.error(e);
		process.exit(1);
	});
}

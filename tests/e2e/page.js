// SPDX-License-Identifier: Apache-2.0
// The web page in Chromium. Prints one line of JSON for each check: {"name", "ok", "detail", "ms"}.
// page.js FOLDER; NODE_PATH has playwright-core and axe-core, CHROMIUM is the browser.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const assert = require('node:assert/strict');
const { chromium } = require('playwright-core');
const { Host, until } = require('./host.js');

const folder = process.argv[2];
const axe = fs.readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const CARD = '0000:41:00.0';
const BADLY_NAMED = '"><img src=x onerror=alert(1)><script>alert(1)</script>\u202e\'&amp;';

async function check(name, f) {
	const started = Date.now();
	let detail = '';
	try {
		await f();
	} catch (e) {
		detail = e.stack;
	}
	console.log(JSON.stringify({ name, ok: !detail, detail, ms: Date.now() - started }));
}

// What a page complains of, but for requests that fail since nobody answers.
const complaints = [];

function listen(page) {
	page.on('pageerror', (e) => complaints.push(String(e)));
	page.on('console', (m) => {
		if (m.type() === 'error' && !/Failed to load resource|net::ERR_/.test(m.text())) complaints.push(m.text());
	});
	page.on('dialog', (d) => complaints.push(`a dialog: ${d.message()}`));
}

async function open(browser, url, options = {}) {
	const context = await browser.newContext(options);
	context.setDefaultTimeout(10000);
	const page = await context.newPage();
	listen(page);
	await page.addInitScript(() => {
		document.addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
	});
	await page.goto(url);
	if (options.javaScriptEnabled !== false) await page.waitForSelector('#live.on');
	return page;
}

const text = (page, selector) => page.locator(selector).innerText();
const isText = (page, selector, wanted) =>
	until(`${selector} to have ${wanted}`, async () => (await text(page, selector)).includes(wanted));
const lacksText = (page, selector, what) =>
	until(`${selector} to lose ${what}`, async () => !(await text(page, selector)).includes(what));

// Contrast is what takes time on a large page.
async function serious(page, contrast = true) {
	await page.evaluate(axe);
	const { violations } = await page.evaluate(
		(enabled) => axe.run({ resultTypes: ['violations'], rules: { 'color-contrast': { enabled } } }),
		contrast,
	);
	return violations
		.filter((v) => v.impact === 'serious' || v.impact === 'critical')
		.map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).slice(0, 3)}`);
}

// Does anything stick out of the window?
const sticksOut = (page) => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);

// --- One host, watched and worked with

async function watching(browser) {
	const host = await Host.start(path.join(folder, 'watch'), { settings: 'gpu:\n  nvml_timeout: 500ms\n' });
	try {
		await host.claim('vm-a', '4Q', { owner: 'team blue' });
		await host.claim('vm-b', '12Q');
		const page = await open(browser, host.url);
		await check('cards-and-vgpus', async () => {
			const { gpus } = await host.get('/gpus');
			assert.equal(await page.locator('.card').count(), gpus.length);
			for (const gpu of gpus) {
				const card = page.locator(`#card-${gpu.address.replaceAll(':', '-').replace('.', '\\.')}`);
				const drawn = await card.locator('.bar td.g').evaluateAll((cells) => cells.map((c) => [c.colSpan, c.innerText.split('\n')[0]]));
				const placed = gpu.placed.toSorted((a, b) => a.id - b.id).map((p) => [p.size, p.profile.split('-').at(-1)]);
				assert.deepEqual(drawn, placed);
				const holes = await card.locator('.bar td.h').evaluateAll((cells) => cells.map((c) => c.colSpan));
				assert.deepEqual(holes, gpu.holes.map((h) => h.size));
			}
			assert.match(await text(page, '#claims'), /vm-a[\s\S]*L40S-4Q[\s\S]*team blue/);
		});
		await check('bar-is-to-scale', async () => {
			const { gpus } = await host.get('/gpus');
			const placed = gpus[0].placed.find((p) => p.size === 12);
			const bar = await page.locator('.bar table').first().boundingBox();
			const cell = await page.locator('.bar td.g', { hasText: '12Q' }).boundingBox();
			assert.ok(Math.abs(cell.width / bar.width - 12 / 48) < 0.01, `${cell.width} of ${bar.width}`);
			assert.ok(Math.abs((cell.x - bar.x) / bar.width - placed.id / 48) < 0.01);
		});
		await check('counts-of-profiles', async () => {
			const { gpu } = await host.get('/resources');
			for (const p of gpu.profiles) {
				const cell = page.locator(`#profiles td[title="${p.name.replace('NVIDIA ', '')}"]`);
				assert.equal(parseInt(await cell.innerText(), 10), p.available, p.name);
			}
		});
		await check('live-claim-and-release', async () => {
			let loads = 0;
			page.on('load', () => loads++);
			await host.berth('claim', 'live-1', '-p', 'L40S-24Q');
			await isText(page, '#claims', 'live-1');
			await until('the block', async () => (await page.locator('.bar td.g', { hasText: 'live-1' }).count()) === 1);
			await host.berth('release', 'live-1');
			await lacksText(page, '#claims', 'live-1');
			assert.equal(loads, 0);
		});
		await check('announced-to-screen-readers', async () => {
			await isText(page, '#say', 'live-1');
			await host.claim('said', '1Q');
			await isText(page, '#say', 'Claim said: NVIDIA L40S-1Q placed on');
			for (let i = 0; i < 6; i++) await host.claim(`many-${i}`, '1Q');
			await isText(page, '#say', 'changes');
			for (let i = 0; i < 6; i++) await host.berth('release', `many-${i}`);
			await lacksText(page, '#claims', 'many-');
		});
		await check('focus-folds-selection-and-scroll-stay', async () => {
			await page.locator('summary').first().click(); // closes it
			await page.locator('#claim-vm-a button').focus();
			const before = await page.evaluate(() => {
				getSelection().selectAllChildren(document.querySelector('#card-0000-41-00\\.0 h3'));
				scrollTo(0, 150);
				return [document.activeElement.dataset.path, scrollY, String(getSelection())];
			});
			await host.claim('zz-last', '2Q');
			await isText(page, '#claims', 'zz-last');
			assert.deepEqual(
				await page.evaluate(() => [document.activeElement.dataset.path, scrollY, String(getSelection())]),
				before,
			);
			assert.deepEqual(await page.locator('details').evaluateAll((all) => all.map((d) => d.open)), [false, true]);
			await page.locator('summary').first().click();
		});
		await check('ages-go-on', async () => {
			const age = page.locator('#claim-vm-a time');
			const first = await age.innerText();
			assert.match(first, /^\d+ (s|min) ago$/);
			await until('another age', async () => (await age.innerText()) !== first);
		});
		await check('cordon-and-uncordon', async () => {
			const card = page.locator('.card').first();
			await card.getByRole('button', { name: 'Cordon' }).click();
			assert.match(await text(page, '#ask'), new RegExp(`Cordon card ${CARD}\\?[\\s\\S]*no new claims`));
			await page.locator('#ask-yes').click();
			await isText(page, '#attention', 'Cordoned');
			assert.equal((await host.get(`/gpus/${CARD}`)).cordoned, true);
			await card.getByRole('button', { name: 'Uncordon' }).click();
			await page.locator('#ask-yes').click();
			await isText(page, '#attention', 'Nothing');
			assert.equal((await host.get(`/gpus/${CARD}`)).cordoned, false);
		});
		await check('release-with-the-mouse', async () => {
			await host.claim('by-mouse', '2Q');
			await page.locator('#claim-by-mouse button').click();
			assert.match(await text(page, '#ask'), /Release claim by-mouse\?[\s\S]*L40S-2Q/);
			await page.locator('#ask-no').click();
			assert.ok((await host.get('/claims')).claims.some((c) => c.name === 'by-mouse'), 'Cancel released it');
			await page.locator('#claim-by-mouse button').click();
			await page.locator('#ask-yes').click();
			await until('the release', async () => !(await host.get('/claims')).claims.some((c) => c.name === 'by-mouse'));
			await lacksText(page, '#claims', 'by-mouse');
		});
		await check('release-with-the-keyboard', async () => {
			await host.claim('by-keys', '2Q');
			const page = await open(browser, host.url);
			await page.keyboard.press('Tab');
			assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
			await page.keyboard.press('Enter');
			assert.equal(await page.evaluate(() => document.activeElement.id), 'cards-h');
			for (let i = 0; i < 200; i++) {
				await page.keyboard.press('Tab');
				if ((await page.evaluate(() => document.activeElement.dataset.path)) === '/claims/by-keys') break;
			}
			const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
			assert.notEqual(outline, 'none');
			await page.keyboard.press('Enter');
			await page.waitForSelector('#ask[open]');
			await page.keyboard.press('Escape');
			await page.waitForSelector('#ask', { state: 'hidden' });
			assert.equal(await page.evaluate(() => document.activeElement.dataset.path), '/claims/by-keys');
			await page.keyboard.press('Enter');
			await page.keyboard.press('Tab');
			await page.keyboard.press('Enter');
			await until('the release', async () => !(await host.get('/claims')).claims.some((c) => c.name === 'by-keys'));
			await lacksText(page, '#claims', 'by-keys');
			// The button is gone: the focus is at its section, not lost.
			assert.equal(await page.evaluate(() => document.activeElement.id), 'claims-h');
			await page.context().close();
		});
		await check('refusal-is-shown', async () => {
			const claim = await host.claim('in-use', '2Q');
			await host.ctl('boot', claim.vf);
			await page.locator('#claim-in-use button').click();
			await page.locator('#ask-yes').click();
			await isText(page, '#ask-error', 'berthd refuses: ');
			assert.equal(await page.evaluate(() => document.activeElement.id), 'ask-no');
			await page.locator('#ask-no').click();
			assert.ok((await host.get('/claims')).claims.some((c) => c.name === 'in-use'));
		});
		await check('quarantine-shown-and-cleared', async () => {
			await host.api('PUT', '/vfs/0000:41:00.6/quarantine');
			await isText(page, '#health', '0000:41:00.6');
			assert.equal(await page.locator('.vfs .q').count(), 1);
			await page.locator('#health').getByRole('button', { name: 'Clear' }).click();
			await page.locator('#ask-yes').click();
			await isText(page, '#health', 'No failures');
		});
		await check('fallback-of-a-card', async () => {
			await host.ctl('set', 'mode', 'equal', '--gpu', '0000:81:00.0');
			await isText(page, '#attention', 'Fallback (equal_size)');
			await isText(page, '#card-0000-81-00\\.0', 'one size only');
			await host.ctl('set', 'mode', 'mixed', '--gpu', '0000:81:00.0');
			await isText(page, '#attention', 'Nothing');
		});
		await check('fallback-of-the-host', async () => {
			await host.ctl('set', 'nvml.hang', '1');
			await isText(page, '#attention', 'Fallback (timeout)');
			await isText(page, '#summary', 'fallback: timeout');
			await host.ctl('set', 'nvml.hang', '0');
			await isText(page, '#attention', 'Nothing');
		});
		await check('hostile-owner-is-text', async () => {
			await host.claim('hostile', '1Q', { owner: BADLY_NAMED });
			await isText(page, '#claims', BADLY_NAMED.replace('\u202e', '???'));
			assert.equal(await page.locator('img, #main script').count(), 0);
		});
		await check('accessible', () => accessible(page, host));
		await check('click-on-a-block-shows-its-claim', async () => {
			await page.locator('.bar td.g', { hasText: 'vm-b' }).click();
			assert.equal(await page.evaluate(() => document.activeElement.id), 'claim-vm-b');
			assert.ok(await page.locator('#claim-vm-b').isVisible());
		});
		await check('read-only-over-tcp', async () => {
			const reader = await open(browser, host.readOnlyUrl);
			assert.equal(await reader.locator('button.act').count(), 0);
			await isText(reader, 'footer', 'for reading only');
			await host.claim('seen-there', '1Q');
			await isText(reader, '#claims', 'seen-there');
			await reader.context().close();
		});
		await check('without-javascript', async () => {
			const plain = await open(browser, host.url, { javaScriptEnabled: false });
			assert.match(await text(plain, '#claims'), /vm-a[\s\S]*20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC/);
			assert.ok(await plain.locator('#profiles table').isVisible());
			assert.equal(await plain.locator('.card .layout tbody tr').first().isVisible(), true);
			assert.equal(await plain.locator('button.act:visible').count(), 0);
			await plain.context().close();
		});
		await check('foreign-page-changes-nothing', () => foreignPage(browser, host));
		await check('too-many-event-readers', () => withoutEvents(browser, host));
		await check('hidden-pages-hold-no-connection', () => hiddenPage(browser, host));
		await check('upgraded-berthd-reloads-the-page', async () => {
			const old = await open(browser, host.url);
			const loaded = old.waitForEvent('load');
			await old.route(host.url, async (route) => {
				const answer = await route.fetch();
				await route.fulfill({ response: answer, body: (await answer.text()).replace('name="berth-page" content="', '$&x') });
			});
			await host.claim('after-upgrade', '1Q');
			await loaded;
			await old.unrouteAll({ behavior: 'ignoreErrors' });
			await old.context().close();
		});
		await lost(page, host);
	} finally {
		await host.stop();
	}
}

// Light, dark and narrow, with every kind of row on it.
async function accessible(page, host) {
	await host.api('PUT', '/vfs/0000:41:00.7/quarantine');
	await host.api('PUT', `/gpus/${CARD}/cordon`);
	await isText(page, '#attention', 'quarantined');
	await isText(page, '#attention', 'Cordoned');
	assert.deepEqual(await serious(page), []);
	await page.emulateMedia({ colorScheme: 'dark' });
	assert.deepEqual(await serious(page), []);
	await page.locator('#claims button.act').first().click();
	assert.deepEqual(await serious(page), []);
	await page.locator('#ask-no').click();
	await page.emulateMedia({ colorScheme: 'light' });
	const size = page.viewportSize();
	await page.setViewportSize({ width: 360, height: 740 });
	assert.deepEqual(await serious(page), []);
	assert.ok((await sticksOut(page)) <= 0);
	await page.setViewportSize(size);
	await host.api('DELETE', '/vfs/0000:41:00.7/quarantine');
	await host.api('DELETE', `/gpus/${CARD}/cordon`);
	await isText(page, '#attention', 'Nothing');
}

// Another page of the same browser, at another port: what it sends without asking must be refused.
async function foreignPage(browser, host) {
	const server = http.createServer((_, answer) => answer.setHeader('Content-Type', 'text/html').end('<p>other'));
	await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
	const context = await browser.newContext();
	const page = await context.newPage();
	try {
		await page.goto(`http://localhost:${server.address().port}/`);
		host.forward.seen.length = 0;
		const results = await page.evaluate(async (url) => {
			const send = (path, options) => fetch(url + path, options).then((a) => a.type, () => 'refused');
			return [
				await send('driver/release', { method: 'POST', mode: 'no-cors' }),
				await send('claims/vm-a', { method: 'DELETE' }),
				await send('claims', {}),
			];
		}, host.url);
		assert.deepEqual(results, ['opaque', 'refused', 'refused']);
		assert.ok(host.forward.seen.includes('POST /driver/release 403'), String(host.forward.seen));
		assert.ok((await host.get('/claims')).claims.some((c) => c.name === 'vm-a'));
		assert.equal((await host.get('/resources')).gpu.fallbacks.length, 0);
	} finally {
		await context.close();
		server.close();
	}
}

// Events for 64 clients; the page behind them polls, and says so.
async function withoutEvents(browser, host) {
	const readers = [];
	try {
		await until('all places to be taken', async () => {
			const { status, request } = await new Promise((resolve) => {
				const request = http.get({ socketPath: host.socket, path: '/events', agent: false }, (answer) =>
					resolve({ status: answer.statusCode, request }));
			});
			readers.push(request);
			return status === 503;
		});
		const context = await browser.newContext();
		const page = await context.newPage();
		await page.goto(host.url);
		await isText(page, '#live', 'Fetched every 5 s');
		await context.close();
	} finally {
		for (const request of readers) request.destroy();
	}
}

async function hiddenPage(browser, host) {
	const before = host.forward.seen.filter((s) => s.startsWith('GET /events')).length;
	const page = await open(browser, host.url);
	const hide = (hidden) =>
		page.evaluate((value) => {
			Object.defineProperty(document, 'hidden', { value, configurable: true });
			document.dispatchEvent(new Event('visibilitychange'));
		}, hidden);
	await hide(true);
	await host.claim('unseen', '1Q');
	await hide(false);
	await page.waitForSelector('#live.on');
	await isText(page, '#claims', 'unseen');
	assert.equal(host.forward.seen.filter((s) => s.startsWith('GET /events')).length, before + 2);
	await page.context().close();
}

async function lost(page, host) {
	await check('lost-connection-is-shown', async () => {
		await host.kill();
		await page.waitForSelector('#live.lost');
		assert.match(await text(page, '#live'), /Connection lost\. What is shown is of \d\d:\d\d:\d\d\./);
		assert.equal(await page.locator('button.act:enabled').count(), 0);
		assert.match(await text(page, '#claims'), /vm-a/);
	});
	await check('recovers-after-a-restart', async () => {
		await host.startDaemon();
		await host.claim('while-away', '1Q');
		await host.berth('release', 'vm-b');
		await page.waitForSelector('#live.on');
		await isText(page, '#claims', 'while-away');
		await lacksText(page, '#claims', 'vm-b');
		assert.ok((await page.locator('button.act:enabled').count()) > 0);
		await host.claim('live-again', '1Q');
		await isText(page, '#claims', 'live-again');
		await isText(page, '#live', 'Live');
	});
}

// --- A large host in trouble, looked at

async function large(browser) {
	const cards = Array.from({ length: 16 }, (_, i) => `0000:${(8 * i + 1).toString(16).padStart(2, '0')}:00.0`);
	const host = await Host.start(path.join(folder, 'large'), { sim: ['--cards', '16', '--address', cards.join(',')] });
	try {
		await host.ctl('set', 'mode', 'equal', '--gpu', cards[7]);
		for (let i = 0; i < 24; i++) await host.claim(`vm-${i}`, ['4Q', '8Q', '1Q', '12Q'][i % 4], { gpu: cards[i % 6], owner: 'team blue' });
		await host.api('PUT', `/gpus/${cards[3]}/cordon`);
		await host.api('PUT', `/vfs/${cards[2].slice(0, -1)}4/quarantine`);
		const page = await open(browser, host.url, { viewport: { width: 1280, height: 900 } });
		await isText(page, '#attention', 'equal_size');
		await check('sixteen-cards', async () => {
			assert.equal(await page.locator('.card').count(), 16);
			assert.equal(await page.locator('details[open]').count(), 0);
			const box = await page.locator('.cards').boundingBox();
			assert.ok(box.height < 1100, `the cards take ${box.height} px`);
			const [a, b] = [await page.locator('.card').nth(0).boundingBox(), await page.locator('.card').nth(1).boundingBox()];
			assert.equal(a.y, b.y);
			await page.locator('summary').nth(1).click();
			assert.ok((await page.locator('.card').nth(1).boundingBox()).width > 2 * a.width);
			await page.locator('summary').nth(1).click();
		});
		await check('sixteen-cards-accessible', async () => assert.deepEqual(await serious(page, false), []));
		await check('accessible-with-forced-colours', async () => {
			await page.emulateMedia({ forcedColors: 'active', reducedMotion: 'reduce' });
			const look = await page.locator('.bar td.g').first().evaluate((e) => getComputedStyle(e).borderTopStyle);
			assert.equal(look, 'solid');
			await page.emulateMedia({ forcedColors: 'none' });
		});
		await check('narrow-without-sideways-scrolling', async () => {
			await page.setViewportSize({ width: 360, height: 740 });
			await page.locator('summary').first().click();
			await host.claim('a'.repeat(128), '1Q', { owner: 'w'.repeat(256) });
			await isText(page, '#claims', 'a'.repeat(128));
			assert.ok((await sticksOut(page)) <= 0, `${await sticksOut(page)} px too wide`);
			assert.ok((await page.locator('.bar').first().boundingBox()).width > 250);
		});
		await page.context().close();
	} finally {
		await host.stop();
	}
}

async function main() {
	const browser = await chromium.launch({ executablePath: process.env.CHROMIUM });
	try {
		await Promise.all([watching(browser), large(browser)]);
		await check('no-complaints-in-the-console', () => assert.deepEqual(complaints, []));
	} finally {
		await browser.close();
	}
}

main().catch((e) => {
	console.error(e);
	process.exit(1);
});

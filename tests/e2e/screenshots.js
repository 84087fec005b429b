// SPDX-License-Identifier: Apache-2.0
// The pictures of docs/page.md. screenshots.js FOLDER OUT
'use strict';

const path = require('node:path');
const { chromium } = require('playwright-core');
const { Host, until } = require('./host.js');

const [folder, out] = process.argv.slice(2);

async function shot(page, name, options = {}) {
	// The cursor's place is of no interest.
	await page.mouse.move(0, 0);
	await page.screenshot({ path: path.join(out, `page-${name}.png`), animations: 'disabled', ...options });
}

async function open(browser, host, options) {
	const page = await (await browser.newContext(options)).newPage();
	await page.goto(host.url);
	await page.waitForSelector('#live.on');
	return page;
}

async function small(browser) {
	const host = await Host.start(path.join(folder, 'small'), {
		sim: ['--cards', '3'],
		configure: (h) => h.ctl('configure', '0000:81:00.4', 'L40S-8Q'),
	});
	const owners = ['render farm', 'team blue', 'ci'];
	const profiles = ['12Q', '4Q', '4Q', '2Q', '8Q', '24A', '1B', '6Q'];
	for (const [i, profile] of profiles.entries()) await host.claim(`vm-${i + 1}`, profile, { owner: owners[i % 3] });
	const page = await open(browser, host, { viewport: { width: 1280, height: 960 } });
	await page.locator('#claims tr[id]').nth(8).waitFor();
	await page.locator('summary').first().click();
	await shot(page, 'light');
	const narrow = await open(browser, host, { viewport: { width: 360, height: 780 } });
	await shot(narrow, 'narrow');
	await page.locator('#claim-vm-3 button').click();
	await shot(page, 'release');
	await page.locator('#ask-no').click();

	await host.api('PUT', '/vfs/0000:81:00.6/quarantine');
	const lost = await host.claim('vm-9', '2Q');
	await host.ctl('configure', lost.vf, '0');
	await until('the problem', async () => (await host.get('/claims/vm-9')).problem);
	await host.ctl('set', 'nvml.error', '999', '--gpu', '0000:41:00.0');
	await until('the fallback', async () => (await host.get('/gpus/0000:41:00.0')).fallback);
	await page.emulateMedia({ colorScheme: 'dark' });
	await page.locator('#attention td', { hasText: 'Fallback (error)' }).waitFor();
	await page.evaluate(() => scrollTo(0, 0));
	await shot(page, 'dark');
	await page.emulateMedia({ colorScheme: 'light' });
	await host.kill();
	await page.waitForSelector('#live.lost');
	await shot(page, 'lost', { clip: { x: 0, y: 0, width: 1280, height: 560 } });
	await host.stop();
}

async function large(browser) {
	const cards = Array.from({ length: 16 }, (_, i) => `0000:${(8 * i + 1).toString(16).padStart(2, '0')}:00.0`);
	const host = await Host.start(path.join(folder, 'large'), { sim: ['--cards', '16', '--address', cards.join(',')] });
	const profiles = ['8Q', '4Q', '12Q', '1Q', '6Q', '4Q', '16Q', '2Q', '24Q'];
	for (let i = 0; i < 64; i++)
		// Some do not fit any more; that is as good a picture.
		await host.api('PUT', `/claims/vm-${i}`, { profile: `L40S-${profiles[(i * 7) % 9]}`, gpu: cards[(i * 5) % 13] });
	await host.api('PUT', `/gpus/${cards[6]}/cordon`);
	await host.api('PUT', `/vfs/${cards[3].slice(0, -1)}5/quarantine`);
	const page = await open(browser, host, { viewport: { width: 1280, height: 1000 } });
	await page.locator('#attention td', { hasText: 'Cordoned' }).waitFor();
	await shot(page, '16-cards');
	await host.stop();
}

async function main() {
	const browser = await chromium.launch({ executablePath: process.env.CHROMIUM });
	await small(browser);
	await large(browser);
	await browser.close();
}

main().catch((e) => {
	console.error(e);
	process.exit(1);
});

// SPDX-License-Identifier: Apache-2.0
// Keeps the page live. berthd renders it; this script fetches the same document again when an event
// says that something has changed, and takes over what differs, so that focus, selection, scrolling
// and what is folded open stay. Besides it turns times into ages and asks before an action.
'use strict';

(() => {
	const SPACING_MS = 500; // between two fetches
	const RETRY_MS = 2000; // without a connection
	const POLL_MS = 5000; // with one, but without events
	const LOOK_MS = 15000; // with both: a dead tunnel tells nobody
	const TIMEOUT_MS = 8000;
	const SAY_MS = 2000; // between two announcements to a screen reader

	const $ = (id) => document.getElementById(id);
	const root = document.documentElement;
	const pageOf = (doc) => doc.querySelector('meta[name=berth-page]')?.content;

	let etag = null;
	let skew = 0; // the server's clock less ours
	let good = null; // when the last answer came, by the server's clock
	let reachable = true;
	let stream = null;
	let streaming = false;
	let fetching = false;
	let wanted = false;
	let started = 0;
	let timer = 0;

	// --- What has changed in the document

	function syncAttributes(have, want) {
		for (const { name, value } of [...want.attributes])
			if (have.getAttribute(name) !== value) have.setAttribute(name, value);
		for (const { name } of [...have.attributes])
			if (!want.hasAttribute(name) && !(name === 'open' && have.nodeName === 'DETAILS'))
				have.removeAttribute(name);
	}

	function sync(have, want) {
		if (have.nodeType !== Node.ELEMENT_NODE) {
			if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
			return;
		}
		const folded = have.nodeName === 'DETAILS' && !have.open;
		const aged = have.nodeName === 'TIME' && have.dateTime === want.dateTime;
		const title = have.title;
		syncAttributes(have, want);
		if (folded) have.open = false;
		if (aged) have.title = title;
		else syncChildren(have, want);
	}

	function syncChildren(have, want) {
		const byId = new Map([...have.children].filter((c) => c.id).map((c) => [c.id, c]));
		let at = have.firstChild;
		for (const next of [...want.childNodes]) {
			const found = next.id ? byId.get(next.id) : at && !at.id && at.nodeName === next.nodeName ? at : null;
			if (!found) {
				const fresh = document.importNode(next, true);
				if (fresh.nodeName === 'TR') fresh.classList.add('new');
				have.insertBefore(fresh, at);
				continue;
			}
			if (found === at) at = at.nextSibling;
			else have.insertBefore(found, at);
			sync(found, next);
		}
		while (at) {
			const gone = at;
			at = at.nextSibling;
			gone.remove();
		}
	}

	function takeOver(text) {
		const next = new DOMParser().parseFromString(text, 'text/html');
		if (!next.getElementById('main')) throw new Error('no page');
		// berthd was upgraded: this script and the style sheet are not its own any more.
		if (pageOf(next) !== pageOf(document)) {
			location.reload();
			return;
		}
		const focused = document.activeElement;
		const section = focused?.closest('section');
		sync($('main'), next.getElementById('main'));
		sync(document.querySelector('footer'), next.querySelector('footer'));
		document.title = next.title;
		if (focused && !focused.isConnected) section?.querySelector('h2')?.focus();
	}

	// --- Connection

	function show() {
		const live = $('live');
		const text = !reachable
			? `Connection lost. What is shown is of ${good ? clock(good) : 'when it was loaded'}. Trying again.`
			: streaming
				? 'Live'
				: `Fetched every ${POLL_MS / 1000} s`;
		live.className = !reachable ? 'lost' : streaming ? 'on' : '';
		if (live.textContent !== text) live.textContent = text;
		root.classList.toggle('lost', !reachable);
		for (const button of document.querySelectorAll('button.act')) button.disabled = !reachable;
	}

	const clock = (date) => date.toLocaleTimeString(undefined, { hour12: false });

	async function refresh() {
		fetching = true;
		wanted = false;
		started = performance.now();
		try {
			const answer = await fetch('/', {
				headers: etag ? { 'If-None-Match': etag } : {},
				cache: 'no-store',
				signal: AbortSignal.timeout(TIMEOUT_MS),
			});
			if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
			if (answer.status !== 304) {
				takeOver(await answer.text());
				etag = answer.headers.get('ETag');
			}
			good = new Date(answer.headers.get('Date') ?? Date.now());
			skew = good - Date.now();
			reachable = true;
		} catch {
			reachable = false;
		}
		fetching = false;
		if (reachable && !stream) connect();
		show();
		tellAges();
		plan(wanted ? 0 : !reachable ? RETRY_MS : streaming ? LOOK_MS : POLL_MS);
	}

	// Fetches after so long, but not sooner after the last time than SPACING_MS.
	function plan(delay) {
		clearTimeout(timer);
		if (document.hidden) return;
		timer = setTimeout(refresh, Math.max(delay, started + SPACING_MS - performance.now()));
	}

	function want() {
		if (fetching) wanted = true;
		else if (!wanted) {
			wanted = true;
			plan(0);
		}
	}

	function disconnect() {
		stream?.close();
		stream = null;
		streaming = false;
	}

	function connect() {
		stream = new EventSource('/events');
		stream.onopen = () => {
			streaming = true;
			want(); // what happened before it was open
		};
		// A browser gives up for good after some failures, so beginning anew is our own matter.
		stream.onerror = () => {
			disconnect();
			want();
		};
		for (const type of ['changed', 'reset', 'fallback', 'recover']) stream.addEventListener(type, want);
		for (const type of ['claim', 'release', 'fallback'])
			stream.addEventListener(type, (event) => announce(type, JSON.parse(event.data)));
	}

	// Browsers allow six connections to one server: pages in the background hold none.
	document.addEventListener('visibilitychange', () => {
		if (document.hidden) {
			disconnect();
			clearTimeout(timer);
		} else if (!fetching) refresh();
	});
	addEventListener('pagehide', disconnect);
	addEventListener('online', want);
	addEventListener('offline', want);

	// --- Ages

	function age(ms) {
		const s = Math.max(0, Math.round(ms / 1000));
		if (s < 60) return `${s} s`;
		if (s < 3600) return `${Math.floor(s / 60)} min`;
		return s < 48 * 3600 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
	}

	function tellAges() {
		for (const time of document.querySelectorAll('time')) {
			const at = Date.parse(time.dateTime);
			if (Number.isNaN(at)) continue;
			const text = `${age(Date.now() + skew - at)} ago`;
			if (time.textContent === text) continue;
			time.textContent = text;
			time.title = new Date(at).toLocaleString();
		}
	}

	// --- Telling a screen reader, in few words

	let news = [];
	let newsTimer = 0;

	function announce(type, data) {
		news.push(
			type === 'claim'
				? `Claim ${data.name}: ${data.profile} placed on ${data.gpu}`
				: type === 'release'
					? `Claim ${data.name} released`
					: data.reason
						? `Fallback on ${data.gpu ?? 'the host'}: ${data.reason}`
						: `Fallback on ${data.gpu ?? 'the host'} has ended`,
		);
		newsTimer ||= setTimeout(() => {
			$('say').textContent = news.length > 2 ? `${news.length} changes` : news.join('. ');
			news = [];
			newsTimer = 0;
		}, SAY_MS);
	}

	// --- Actions

	let asked = null;

	function ask(button) {
		asked = button.dataset;
		const end = asked.ask.indexOf('?') + 1;
		$('ask-what').textContent = asked.ask.slice(0, end);
		$('ask-text').textContent = asked.ask.slice(end).trim();
		$('ask-error').textContent = '';
		$('ask-yes').textContent = button.textContent;
		$('ask-yes').disabled = false;
		$('ask-yes').hidden = false;
		$('ask-no').textContent = 'Cancel';
		$('ask').showModal();
	}

	function refused(text) {
		$('ask-error').textContent = text;
		$('ask-yes').hidden = true;
		$('ask-no').textContent = 'Close';
		$('ask-no').focus();
	}

	async function act() {
		$('ask-yes').disabled = true;
		try {
			const answer = await fetch(asked.path, { method: asked.method, cache: 'no-store' });
			if (answer.ok) {
				$('ask').close();
				$('say').textContent = answer.status === 202 ? 'Under way' : 'Done';
			} else {
				const problem = await answer.json().catch(() => ({}));
				refused(`berthd refuses: ${problem.detail ?? problem.title ?? `status ${answer.status}`}`);
			}
		} catch {
			refused('berthd cannot be reached.');
		}
		want();
	}

	function reveal(id) {
		const row = $(id);
		if (!row) return;
		row.scrollIntoView({ block: 'center' });
		row.focus();
	}

	document.addEventListener('click', (event) => {
		const button = event.target.closest('button.act');
		const block = event.target.closest('[data-row]');
		if (button) ask(button);
		else if (block) reveal(block.dataset.row);
	});
	$('ask-no').addEventListener('click', () => $('ask').close());
	$('ask-yes').addEventListener('click', act);

	root.classList.add('script');
	tellAges();
	setInterval(() => document.hidden || tellAges(), 1000);
	if (!document.hidden) refresh();
})();

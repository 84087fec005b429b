# SPDX-License-Identifier: Apache-2.0
"""The web page as berthd answers it, without a browser (tests/e2e has one), and who may change something."""
import collections
import html.parser
import http.client
import json
import pathlib
import re
import socket

import pytest

import openapi
from conftest import UnixConnection, typed_vfs, wait_for
from plain_host import PlainHost
from test_claims import as_user, open_to_all
from tls_daemon import TlsHost, free_port

CARD = "0000:41:00.0"
VOID = {"meta", "link", "br", "img", "input", "colgroup"}
FILES = {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/icon.svg": "image/svg+xml"}
WEB = pathlib.Path(__file__).resolve().parents[2] / "web"


class Page(html.parser.HTMLParser):
    """Strict about nesting; keeps texts, ids, links and buttons."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.buttons, self.tags = [], [], [], [], collections.Counter()
        self.texts = []
        self.feed(text)
        self.close()
        assert not self.open
        assert len(self.ids) == len(set(self.ids)), "an id comes twice"
        assert {link[1:] for link in self.links if link[0] == "#"} <= set(self.ids), "a link leads nowhere"

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags[tag] += 1
        assert "style" not in attributes and not any(a.startswith("on") for a in attributes), (tag, attributes)
        if tag not in VOID or tag == "colgroup":
            self.open.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        if "data-path" in attributes:
            self.buttons.append((attributes["data-method"], attributes["data-path"]))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> in {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def page(daemon):
    answer = daemon.request("GET", "/")
    assert answer.status == 200
    return Page(answer.body.decode())


def ask(daemon, method, path, headers=None, tcp=None):
    """Over the socket, or over TCP to a port; headers replace the usual ones."""
    connection = http.client.HTTPConnection("127.0.0.1", tcp, timeout=20) if tcp else UnixConnection(daemon.socket)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": "localhost", **(headers or {})}.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    openapi.check(method, path, answer.status, answer.getheader("Content-Type"), body)
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body


# --- How it is served ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES)
def test_headers(daemon, path):
    status, headers, body = ask(daemon, "GET", path)
    assert status == 200 and headers["content-type"].partition(";")[0] == FILES[path]
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[k] for k in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert "unsafe" not in headers["content-security-policy"] and "http" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
    # Kept by a browser, but never used without asking: an upgraded berthd's page is not stale.
    assert headers["cache-control"] == "private, no-cache"
    known = headers["etag"]
    for sent in (known, f"W/{known}", f'"x", {known}'):
        status, again, body = ask(daemon, "GET", path, {"If-None-Match": sent})
        assert (status, body, again["etag"]) == (304, b"", known)
        assert again["cache-control"] == "private, no-cache"
    assert ask(daemon, "GET", path, {"If-None-Match": '"other"'})[0] == 200
    assert ask(daemon, "HEAD", path)[0] == 200
    assert daemon.request("GET", f"{path}?x=1").code == "bad_request"
    assert daemon.request("PUT", path, {}).code == "method_not_allowed"


def test_files_are_those_of_the_tree(daemon):
    for name in ("page.css", "page.js", "icon.svg"):
        assert ask(daemon, "GET", f"/{name}")[2] == (WEB / name).read_bytes()


def test_no_outside_address_in_any_file(daemon):
    for path in FILES:
        text = ask(daemon, "GET", path)[2].decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?i)https?:|//[a-z]+\.|@import|url\(", text), path


def test_a_change_makes_another_page_and_the_same_state_the_same(daemon):
    etag = ask(daemon, "GET", "/")[1]["etag"]
    assert ask(daemon, "GET", "/", {"If-None-Match": etag})[0] == 304
    daemon.claim("vm")
    status, headers, _ = ask(daemon, "GET", "/", {"If-None-Match": etag})
    assert status == 200 and headers["etag"] != etag


def test_looking_asks_the_driver_nothing(sim, start_daemon):
    daemon = start_daemon(sim, {"reconcile_interval": "10m"})
    daemon.claim("vm")

    def asked_nothing():
        """The claim is followed by a refresh, and reads of the VFs' types go on once a second."""
        before = sim.counters()
        for _ in range(100):
            assert daemon.request("GET", "/").status == 200
        after = sim.counters()
        return (after["nvml_calls"], after["attr_writes"]) == (before["nvml_calls"], before["attr_writes"]) and \
            after["attr_reads"] - before["attr_reads"] < 100

    wait_for(asked_nothing, "GETs that ask the driver nothing")


# --- What it shows ---------------------------------------------------------------------------------


def test_shows_what_the_api_says(daemon):
    names = {f"vm-{p}": p for p in ("4Q", "8Q", "12Q", "24A", "1B")}
    for name, kind in names.items():
        assert daemon.claim(name, f"L40S-{kind}", owner=f"owner of {name}").status == 201
    shown = page(daemon)
    for name, claim in daemon.claims().items():
        for text in (name, claim["profile"].removeprefix("NVIDIA "), claim["vf"], claim["gpu"], f"owner of {name}"):
            assert text in shown.text
        assert ("DELETE", f"/claims/{name}") in shown.buttons
        assert f"claim-{name}" in shown.ids
    for card in daemon.get("/gpus")["gpus"]:
        assert f"card-{card['address'].replace(':', '-')}" in shown.ids
        slots = card["slots"]
        assert f"{slots['used']} of {slots['total']} VFs used, {slots['allocatable']} claimable" in shown.text
        assert ("PUT", f"/gpus/{card['address']}/cordon") in shown.buttons
    assert "Needs attention Nothing." in shown.text


def test_holes_and_free_placements_agree(daemon):
    for n, kind in enumerate(("4Q", "8Q", "12Q", "24A", "1B", "2Q", "3Q", "16A", "6Q", "1Q", "1Q")):
        daemon.claim(f"vm{n}", f"L40S-{kind}")
    sums = collections.Counter()
    for card in daemon.get("/gpus")["gpus"]:
        units = set(range(card["region"]))
        for placed in card["placed"]:
            units -= set(range(placed["id"], placed["id"] + placed["size"]))
        assert units == {u for h in card["holes"] for u in range(h["id"], h["id"] + h["size"])}
        fits = collections.Counter()
        for hole in card["holes"]:
            for fit in hole["fits"]:
                fits[fit["profile"]] += fit["placements"]
        for p in card["profiles"]:
            assert fits[p["name"]] == p["free_placements"]
            sums[p["name"]] += p["free_placements"]
    for p in daemon.resources()["profiles"]:
        assert p["free_placements"] == sums[p["name"]]


def test_holes_are_not_known_in_a_fallback(sim, start_daemon):
    sim.ctl("set", "mode", "equal", "--gpu", CARD)
    daemon = start_daemon(sim)
    cards = {c["address"]: c for c in daemon.get("/gpus")["gpus"]}
    assert cards[CARD]["holes"] is None
    assert all(c["holes"] is not None for a, c in cards.items() if a != CARD)
    assert all(p["free_placements"] is None for p in daemon.resources()["profiles"])
    assert "Fallback (equal_size)" in page(daemon).text


def test_ghost_placement_is_a_hole_with_nothing_in_it(sim, daemon):
    claim = daemon.claim("vm", "L40S-48Q").json
    sim.ctl("set", "nvml.ghost", 1, "--vf", claim["vf"])
    daemon.release("vm")

    def hole():
        card = daemon.get(f"/gpus/{claim['gpu']}")
        return card["holes"] if not card["placed"] and card["holes"] else None

    wait_for(lambda: hole() == [{"id": 0, "size": 48, "fits": []}], "the hole")
    assert "nothing: NVML offers no placement here" in page(daemon).text


def test_host_fallback_and_its_end(sim, start_daemon):
    daemon = start_daemon(sim, {"reconcile_interval": "200ms", "gpu": {"nvml_timeout": "300ms"}})
    sim.ctl("set", "nvml.hang", 1)
    wait_for(lambda: "Fallback (timeout)" in page(daemon).text, "the fallback")
    shown = page(daemon)
    assert "Placements fallback: timeout" in shown.text
    assert shown.text.count("NVML gives no placements, so the VFs' own lists count") == 1
    sim.ctl("set", "nvml.hang", 0)
    wait_for(lambda: "Needs attention Nothing." in page(daemon).text, "its end")


def test_trouble(sim, start_daemon):
    """Cordon, quarantine, a VF that lost its type, a stuck card, an external claim."""
    sim.ctl("configure", "0000:41:00.4", "L40S-8Q")
    daemon = start_daemon(sim, {"gpu": {"card_timeout": "1s"}})
    lost = daemon.claim("lost", gpu=CARD).json
    assert daemon.request("PUT", f"/gpus/{CARD}/cordon").status == 200
    assert daemon.request("PUT", "/vfs/0000:41:00.6/quarantine").status == 200
    sim.ctl("configure", lost["vf"], 0)
    wait_for(lambda: daemon.claims()["lost"]["problem"], "the problem")
    shown = page(daemon)
    for text in ("Cordoned: it takes no new claims.", "1 VF is quarantined", "lost : its VF has lost its type",
                 "external (found at the first start)", "external-0000-41-00.4", "type_lost"):
        assert text in shown.text, text
    assert ("DELETE", f"/gpus/{CARD}/cordon") in shown.buttons
    assert ("DELETE", "/vfs/0000:41:00.6/quarantine") in shown.buttons
    other = next(c["address"] for c in daemon.get("/gpus")["gpus"] if c["address"] != CARD)
    sim.ctl("set", "sysfs.write_hang", 1, "--gpu", other)
    assert daemon.claim("stuck", gpu=other).code == "driver_stuck"
    assert "Stuck: a call into the driver does not return" in page(daemon).text
    sim.ctl("set", "sysfs.write_hang", 0, "--gpu", other)


def test_records_of_vfs_that_are_gone(sim, daemon):
    daemon.request("PUT", "/vfs/0000:41:00.6/quarantine")
    sim.ctl("remove", CARD)
    wait_for(lambda: len(daemon.get("/gpus")["gpus"]) == 1, "the card to go")
    shown = page(daemon)
    assert "0000:41:00.6 quarantined" in shown.text and "not there at present" in shown.text
    assert ("DELETE", "/vfs/0000:41:00.6/quarantine") in shown.buttons


def test_before_anything_is_known(sim, start_daemon):
    """Not a zero among it: what is not known is said to be not known."""
    sim.ctl("set", "nvml.latency_ms", 3000)
    daemon = start_daemon(sim, ready=False)
    shown = page(daemon)
    assert "Not known yet" in shown.text and "VFs used" not in shown.text.partition("Cards")[0]
    sim.ctl("set", "nvml.latency_ms", 0)
    daemon.wait_ready()
    assert "Not known yet" not in page(daemon).text


def test_unreadable_stores(sim, start_daemon):
    daemon = start_daemon(sim)
    daemon.claim("vm")
    daemon.stop()
    (daemon.data_dir / "claims.db").write_bytes(b"not a database" * 1000)
    (daemon.data_dir / "gpu").mkdir(exist_ok=True)
    (daemon.data_dir / "gpu/vf-health.json").write_text("{")
    daemon.start(ready=False)
    wait_for(lambda: daemon.request("GET", "/readyz").json.get("code") == "health_store_unavailable", "the refusal")
    wait_for(lambda: "The claims database cannot be used" in page(daemon).text, "the reason")
    wait_for(lambda: "Claims not known" in page(daemon).text, "the cards")
    shown = page(daemon)
    assert "The health records cannot be used" in shown.text
    assert "no VF is quarantined" not in shown.text
    assert typed_vfs(sim)


def test_other_kinds_of_host(work, start_daemon):
    none = PlainHost(work / "none")
    none.write("0000:00:1f.0", vendor="0x8086\n", device="0x1234\n", **{"class": "0x060100\n"})
    assert "No NVIDIA GPU was found on this host." in page(start_daemon(none)).text
    whole = PlainHost(work / "whole")
    whole.function("0000:31:00.0", "vfio-pci")
    whole.function("0000:4b:00.0", None)
    shown = page(start_daemon(whole))
    assert "2 passed through whole" in shown.text and "it goes to one VM as a whole" in shown.text
    assert "It is bound to no driver." in shown.text and "No profile is known" in shown.text
    assert not shown.buttons


def test_no_library(sim, start_daemon):
    """Without NVML the region is not known, so no bar is drawn; the numbers are there."""
    daemon = start_daemon(sim, {"nvml_library": ""})
    daemon.claim("vm", "L40S-8Q")
    shown = page(daemon)
    assert "Fallback (library)" in shown.text and "mode not known" in shown.text
    for p in daemon.resources()["profiles"]:
        assert p["free_placements"] is None
    assert "vm" in shown.text


HOSTILE = "\"><script>alert(1)</script><b onclick='x'>\u202e'&amp;"


def test_hostile_owner(daemon):
    daemon.claim("vm", owner=HOSTILE)
    body = daemon.request("GET", "/").body.decode()
    shown = Page(body)
    assert shown.tags["script"] == 1
    assert HOSTILE.replace("\u202e", "???") in "".join(shown.texts)
    assert body.count("<bdi>&quot;&gt;&lt;script&gt;") == 1


# --- Who may ---------------------------------------------------------------------------------------


def test_buttons_by_viewer(sim, start_daemon):
    port = free_port()
    daemon = start_daemon(sim, {"listen": f"127.0.0.1:{port}"})
    daemon.claim("roots")
    daemon.request("PUT", "/vfs/0000:41:00.6/quarantine")
    open_to_all(daemon)
    assert as_user(4242, lambda: daemon.claim("theirs").status) == 201
    assert {p for _, p in page(daemon).buttons} >= {"/claims/roots", "/claims/theirs", f"/gpus/{CARD}/cordon",
                                                   "/vfs/0000:41:00.6/quarantine"}
    theirs = Page(as_user(4242, lambda: daemon.request("GET", "/").body.decode()))
    paths = {p for _, p in theirs.buttons}
    assert paths >= {"/claims/theirs", f"/gpus/{CARD}/cordon"}
    assert not paths & {"/claims/roots", "/vfs/0000:41:00.6/quarantine"}
    reader = Page(ask(daemon, "GET", "/", tcp=port)[2].decode())
    assert not reader.buttons and "for reading only" in reader.text
    # Each kind of viewer has its own copy, whoever looked last.
    for _ in range(2):
        assert len(page(daemon).buttons) > len(paths) > 0
        assert not Page(ask(daemon, "GET", "/", tcp=port)[2].decode()).buttons
    for uid in range(5000, 5008):
        assert "/claims/theirs" not in as_user(uid, lambda: daemon.request("GET", "/").body.decode())


def test_shared_claims(sim, start_daemon):
    daemon = start_daemon(sim, {"claims": "shared"})
    daemon.claim("roots")
    open_to_all(daemon)
    assert ("DELETE", "/claims/roots") in Page(
        as_user(4242, lambda: daemon.request("GET", "/").body.decode())).buttons


OWN = {"Host": "localhost:8080", "Origin": "http://localhost:8080", "Sec-Fetch-Site": "same-origin"}


def test_buttons_over_tls(sim, start_daemon):
    """Roles by certificate; a browser sends the certificate for any page, so origins count here too."""
    host = TlsHost(sim, start_daemon, admins=["boss"], readers=["looker"])
    assert host.request("node-a", "PUT", "/claims/theirs", {"profile": "L40S-1Q"}).status == 201
    host.daemon.claim("roots")

    def paths(name):
        return {p for _, p in Page(host.request(name, "GET", "/").body.decode()).buttons}

    assert paths("looker") == set()
    assert {"/claims/theirs", f"/gpus/{CARD}/cordon"} <= paths("node-a") and "/claims/roots" not in paths("node-a")
    assert "/claims/theirs" not in paths("node-b")
    assert {"/claims/theirs", "/claims/roots"} <= paths("boss")
    own = f"https://localhost:{host.port}"
    for origin, site, status in (("https://evil.example", "cross-site", 403), (own, "same-site", 403),
                                 (own, "same-origin", 200)):
        connection = host.connect("node-a")
        connection.request("DELETE", "/claims/theirs", headers={"Host": f"localhost:{host.port}", "Origin": origin,
                                                                "Sec-Fetch-Site": site})
        assert connection.getresponse().status == status
        connection.close()


ALLOWED = [{}, {"Host": "berthd"}, OWN, {"Host": "127.0.0.1:8080"}, {**OWN, "Sec-Fetch-Site": "none"},
           {**OWN, "Sec-Fetch-Site": None}, {**OWN, "Origin": None}]
REFUSED = [{**OWN, "Sec-Fetch-Site": "cross-site"}, {**OWN, "Sec-Fetch-Site": "same-site"},
           {"Sec-Fetch-Site": "cross-site"}, {**OWN, "Origin": "http://localhost:3000"},
           {**OWN, "Origin": "http://evil.example"}, {**OWN, "Origin": "null"}, {"Origin": "http://evil.example"},
           {"Host": "evil.example:8080", "Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"},
           {"Host": "evil.example"}, {"Host": "berthd:8080", "Origin": "http://berthd:8080"}]


def test_foreign_pages_change_nothing(daemon):
    """Every way of changing something, as a browser behind ssh -L would send it."""
    daemon.claim("vm")
    routes = [("DELETE", "/claims/vm"), ("PUT", "/claims/other"), ("POST", "/fit"), ("POST", "/driver/resume"),
              ("PUT", f"/gpus/{CARD}/cordon"), ("DELETE", f"/gpus/{CARD}/cordon"), ("POST", "/driver/release"),
              ("PUT", "/vfs/0000:41:00.4/quarantine"), ("DELETE", "/vfs/0000:41:00.4/quarantine"),
              ("POST", f"/gpus/{CARD}/recover")]
    known = {(m.upper(), p) for p, item in openapi.DOCUMENT["paths"].items() for m in item if m in ("put", "post", "delete")}
    assert len(known) == len(routes), "a way of changing something is not in this test"
    for headers in REFUSED:
        for method, path in routes:
            status, _, body = ask(daemon, method, path, headers)
            assert (status, json.loads(body)["code"]) == (403, "forbidden"), (method, path, headers)
    assert list(daemon.claims()) == ["vm"] and not daemon.get(f"/gpus/{CARD}")["cordoned"]
    assert not daemon.vfs()["0000:41:00.4"]["quarantined"]
    for headers in ALLOWED:
        assert ask(daemon, "DELETE", "/claims/vm", headers)[0] == 200, headers
        assert daemon.claim("vm").status == 201


def test_a_rebound_name_reads_nothing(daemon):
    """A page whose name was pointed to 127.0.0.1 sends GET without any other mark."""
    for path in ("/", "/claims", "/metrics", "/events"):
        for host in ("evil.example:8080", "evil.example", "a:1", ""):
            assert ask(daemon, "GET", path, {"Host": host})[0] == 403, (path, host)
        for host in ("localhost:8080", "127.0.0.1:8080", "unix") if path != "/events" else ():
            assert ask(daemon, "GET", path, {"Host": host})[0] == 200, (path, host)


# --- The event ------------------------------------------------------------------------------------


def test_changed_event(daemon):
    """Comes for what no other event tells, coalesced, and always after the last change."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(daemon.socket)
        s.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        stream = s.makefile("rb")

        def revisions():
            for line in stream:
                if line == b"event: changed\n":
                    assert next(stream).startswith(b"id: ")
                    yield json.loads(next(stream)[len("data: "):])["revision"]

        seen = revisions()
        daemon.request("PUT", f"/gpus/{CARD}/cordon")
        first = next(seen)
        for n in range(40):
            daemon.request("PUT" if n % 2 else "DELETE", f"/gpus/{CARD}/cordon")
        daemon.request("DELETE", f"/gpus/{CARD}/cordon")
        count, last = 0, first
        while last < first + 41:
            last, count = next(seen), count + 1
        assert count < 40
    assert not daemon.get(f"/gpus/{CARD}")["cordoned"]

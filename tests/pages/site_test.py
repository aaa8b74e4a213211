"""Checks a built site: python3 tests/pages/site_test.py FOLDER.

Every link and figure of a page leads to a file of the site, and to an anchor of it; no page fetches anything from
another host; no mark of Markdown was left over. Where Chromium is installed, no page scrolls sideways in a window of
400 pixels, none is empty, and the search finds a page.
"""

import functools
import html.parser
import http.server
import json
import pathlib
import queue
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

WIDTH = 400  # CSS pixels, a small phone
HARNESS = "width-check.html"
SEARCHED, FOUND = "hadamard", "The Hadamard transform"
FETCHING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
LEFT_OVER = re.compile(r"<p>[^<]*(\|---|^\s*#{1,6} |```)|&lt;!--|^\s*\| [^<]*\|\s*$", re.MULTILINE)


class Page(html.parser.HTMLParser):
    """The links, the anchors and what the page fetches."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.fetched = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found.get("id"), found.get("name")}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag in FETCHING and found.get(FETCHING[tag]) and found.get("rel") != "canonical":
            self.fetched.append(found[FETCHING[tag]])


def outside_code(text):
    return re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL)


def wrong_links(site, texts):
    pages = {path: Page(text) for path, text in texts.items()}
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.fetched:
            if re.match(r"(https?:)?//", link):
                yield f"{name}: fetches {link}"
        for link in page.links + page.fetched:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{name}: no file {link}"
            elif (
                parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors
            ):
                yield f"{name}: no anchor {link}"


def left_overs(site, texts):
    for path, text in texts.items():
        for found in LEFT_OVER.finditer(outside_code(text)):
            yield f"{path.relative_to(site)}: Markdown that was not read: {found[0].strip()[:80]}"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def widths(site, names, chromium):
    """{page: [width of its content in a frame of WIDTH, characters of its text]}, as Chromium lays it out."""
    (site / HARNESS).write_text(f"""<!doctype html><body><pre id=out></pre><script>
const names = {json.dumps(names)}, found = {{}};
async function measure() {{
  for (const name of names) {{
    const frame = document.createElement('iframe');
    frame.style.cssText = 'width:{WIDTH}px;height:800px;border:0';
    frame.src = name;
    document.body.append(frame);
    await new Promise(done => frame.onload = done);
    await new Promise(done => setTimeout(done, 300));
    const of = frame.contentDocument;
    const scrolls = e => e && (/auto|scroll/.test(frame.contentWindow.getComputedStyle(e).overflowX) ||
      e.matches('.md-clipboard') || (!e.matches('article') && scrolls(e.parentElement)));
    const widest = [...of.querySelectorAll('article *')].map(e => [e.getBoundingClientRect().right, e])
      .filter(([right, e]) => right > {WIDTH} + 1 && !scrolls(e.parentElement))
      .map(([right, e]) => e.tagName + ': ' + e.textContent.trim().slice(0, 60));
    found[name] = [of.documentElement.scrollWidth, of.body.innerText.length, widest.slice(0, 2)];
    frame.remove();
  }}
  document.getElementById('out').textContent = 'WIDTHS' + JSON.stringify(found) + 'END';
}}
measure();
</script>""")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ran = subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--window-size={WIDTH + 100},900",
                "--virtual-time-budget=120000",
                "--timeout=240000",
                "--dump-dom",
                f"http://127.0.0.1:{server.server_port}/{HARNESS}",
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        server.shutdown()
    (site / HARNESS).unlink()
    found = re.search(r"WIDTHS(\{.*\})END", ran.stdout)
    if not found:
        sys.exit(f"Chromium measured nothing: {ran.stderr[-2000:]}")
    return json.loads(html.unescape(found[1]))


class Listening(Quiet):
    """Serves the site, and keeps what its pages report to /found."""

    found = queue.Queue()

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        if parts.path != "/found":
            return super().do_GET()
        self.found.put(urllib.parse.parse_qs(parts.query))
        self.send_response(204)
        self.end_headers()


def found_by_search(site, word, chromium):
    """The titles that the search of the site finds for a word, as a reader sees them; None if it never answers."""
    (site / HARNESS).write_text(f"""<!doctype html><body><script>
const frame = document.createElement('iframe');
frame.style.cssText = 'width:1200px;height:800px';
frame.src = 'index.html?q={word}';
document.body.append(frame);
const poll = () => {{
  const titles = [...frame.contentDocument.querySelectorAll('.md-search-result__list h1, .md-search-result__list h2')];
  if (!titles.length) return setTimeout(poll, 200);
  fetch('/found?' + new URLSearchParams(titles.map(t => ['title', t.textContent.trim()])));
}};
frame.onload = poll;
</script>""")
    handler = functools.partial(Listening, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{HARNESS}"
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", address]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return Listening.found.get(timeout=120).get("title", [])
        except queue.Empty:
            return None
        finally:
            browser.terminate()
            browser.wait()
            server.shutdown()
            (site / HARNESS).unlink()


def main():
    site = pathlib.Path(sys.argv[1]).resolve()
    texts = {path: path.read_text() for path in sorted(site.rglob("*.html")) if path.name not in ("404.html", HARNESS)}
    wrong = [*wrong_links(site, texts), *left_overs(site, texts)]
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    names = [path.relative_to(site).as_posix() for path in texts if "files" not in path.relative_to(site).parts[:1]]
    if chromium:
        for name, (width, length, widest) in widths(site, names, chromium).items():
            if width > WIDTH:
                wrong.append(f"{name}: {width} pixels wide in a window of {WIDTH}: {widest}")
            if length < 200:
                wrong.append(f"{name}: only {length} characters of text")
        titles = found_by_search(site, SEARCHED, chromium)
        if not titles or FOUND not in titles:
            wrong.append(f"the search for {SEARCHED!r} finds {titles}, without {FOUND!r}")
    else:
        print("not checked: the width of pages, as no Chromium is installed")
    print("\n".join(wrong) or f"{len(texts)} pages, all links lead somewhere")
    sys.exit(bool(wrong) or len(texts) < 30)


if __name__ == "__main__":
    main()

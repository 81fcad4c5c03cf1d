"""The pages of the dashboard in a real browser, where Chromium is installed."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import remuda
from dashboard_runs import QUICK, fixed_run, lines_of, made_run, place, population_run
from remuda.config import load_config
from remuda.coordinator.callback import ActiveRun
from remuda.coordinator.requests import Requests
from remuda.envs.description import EnvSpec
from remuda.envs.live_options import LiveEnvOptions
from remuda.runs.run_directory import RunDirectory

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="there is no Chromium with its driver"
    ),
]
PATIENCE = 120.0


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, Service(DRIVER))
    yield found
    found.quit()


class Dashboard:
    """A server over a directory, as a user starts it."""

    def __init__(self, base, driver, *flags):
        words = [sys.executable, "-m", "remuda", "dashboard", str(base), "--port", "0", *flags]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split(" at ")[1].split()[0]
        self.driver = driver

    def open(self, page=""):
        self.driver.get("about:blank")
        self.driver.get(self.address + page)

    def ask(self, script):
        return self.driver.execute_script(f"return {script}")

    def wait(self, script):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = self.ask(script)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{script} did not come true; the page says: {self.text()[:2000]}")

    def text(self):
        return self.ask("document.body.innerText")

    def complaints(self):
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]


@pytest.fixture
def dashboard(driver):
    opened = []

    def opening(base, *flags):
        driver.get_log("browser")  # what others left
        opened.append(Dashboard(base, driver, *flags))
        return opened[-1]

    yield opening
    for each in opened:
        complaints = each.complaints()
        driver.get("about:blank")  # or the page would miss its server, in the next test's log
        each.process.terminate()
        assert each.process.wait() == 128 + signal.SIGTERM
        assert complaints == []


def real_runs():
    fixed_run(), population_run()
    return place()


@pytest.mark.slow
def test_from_the_table_to_a_run(dashboard):
    page = dashboard(real_runs())
    page.open()
    page.wait("document.querySelectorAll('tbody tr').length === 2")
    assert "2 of 2 runs" in page.text()
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Filter runs']").send_keys("treasure")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Compare fixed']").click()
    page.wait("document.querySelectorAll('canvas').length >= 1")
    page.driver.find_element(By.LINK_TEXT, "fixed").click()
    page.wait("document.querySelectorAll('canvas').length >= 4")
    assert "agent-steps/s" in page.text()
    assert "Roles" in page.text()
    assert page.ask("document.title") == "Run: fixed – Remuda"


@pytest.mark.slow
@pytest.mark.parametrize("view", ["population", "timeline", "run"])
def test_each_page_of_a_population(dashboard, view):
    page = dashboard(real_runs())
    page.open(f"#/{view}/population")
    if view == "timeline":
        page.wait("document.body.innerText.includes('has no trace')")
        assert page.ask("document.querySelector('.note code').innerText").startswith("remuda train")
        assert "`" not in page.text()
        return
    page.wait("document.querySelectorAll('canvas').length >= 3")
    if view == "population":
        page.wait("document.querySelector('[aria-label=\"Payoffs\"] canvas')")
        page.wait("document.querySelector('[aria-label=\"Ratings\"] canvas')")


@pytest.mark.slow
def test_payoffs_of_self_play_are_those_of_the_learner_against_each(dashboard, tmp_path):
    """Red before: a heat map of all members in which one row and one column were known."""
    remuda.train(
        "rock_paper_scissors",
        **{**QUICK, "run": QUICK["run"] | {"turns": 2000, "directory": str(tmp_path / "run")}},
        env={"num_envs": 8},
        population={"matchmaker": "self_play", "snapshots": {"every": 2, "keep": 9}},
        policy={"algorithm": "ppo", "ppo": {"rollout_length": 8}},
    )
    page = dashboard(tmp_path)
    page.open("#/population/run")
    page.wait("document.querySelector('[aria-label=\"Payoffs\"] canvas')")
    assert "No two others have met" in page.text()
    kinds = (
        "window.echarts.getInstanceByDom(document.querySelector('[aria-label=Payoffs] .chart'))"
        ".getOption().series.map((each) => each.type)"
    )
    assert page.ask(kinds) == ["scatter", "custom"]


UNBROKEN = """
const body = document.querySelector('.runs tbody');
const pieces = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
const broken = [], range = document.createRange();
while (pieces.nextNode()) {
  for (const word of pieces.currentNode.data.matchAll(/\\S+/g)) {
    range.setStart(pieces.currentNode, word.index);
    range.setEnd(pieces.currentNode, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map((each) => each.top)).size > 1) broken.push(word[0]);
  }
}
return broken;
"""
"""The words of the table that are broken over two lines."""


@pytest.mark.slow
def test_the_table_on_a_phone_breaks_no_word_and_has_the_settings_that_differ(dashboard, tmp_path):
    for rate in ("0.001", "0.0003"):
        run = made_run(tmp_path / f"treasure_hunt_with_a_long_name-rate{rate}")
        with (run / "config.yaml").open("a") as file:
            file.write(f"policy: {{learning_rate: {rate}}}\n")
    page = dashboard(tmp_path)
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        page.open()
        page.wait("document.querySelectorAll('.runs tbody tr').length === 2")
        assert page.driver.execute_script(UNBROKEN) == []
        assert page.ask("document.documentElement.scrollWidth") <= 390
        head = page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Sort by learning rate']")
        page.driver.execute_script("arguments[0].click()", head)
        rates = (
            "[...document.querySelectorAll('.runs tbody tr')].map((row) => row.cells[6].innerText)"
        )
        assert page.ask(rates) == ["0.001", "3.00e-4"]
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_an_episode_plays(dashboard):
    page = dashboard(real_runs())
    page.open("#/watch/fixed")
    page.wait("document.querySelector('.stage img')?.src.startsWith('data:image/png')")
    page.wait("/turn [3-9]/.test(document.querySelector('.stage').innerText)")
    page.driver.find_element(By.CSS_SELECTOR, "[aria-pressed]").click()
    before = page.ask("document.querySelector('[aria-label=\"Turn\"]').value")
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='One turn back']").click()
    after = page.ask("document.querySelector('[aria-label=\"Turn\"]').value")
    assert int(after) == int(before) - 1
    page.wait("document.querySelector('[aria-label=\"Choices\"] canvas')")


@pytest.mark.slow
def test_a_person_plays_an_episode_and_keeps_it(dashboard):
    """A game of one turn: rock, paper, scissors."""
    page = dashboard(real_runs())
    page.open("#/watch/population")
    choose = (
        "(() => { const seat = document.querySelector('[aria-label=\"Policy of agent_1\"]');"
        " if (!seat) return false; seat.value = 'me';"
        " seat.dispatchEvent(new Event('change')); return true; })()"
    )
    page.wait(choose)
    buttons = "[aria-label='Your action'] button"
    page.wait(f'document.querySelectorAll("{buttons}").length === 3')
    assert "agent_1, your turn" in page.text()
    page.driver.execute_script(
        "HTMLAnchorElement.prototype.click = function () { window.kept = this; };"
        "URL.createObjectURL = (blob) => { blob.text().then((text) => { window.text = text; });"
        " return 'blob:none'; };"
    )
    page.driver.find_element(By.CSS_SELECTOR, buttons).click()
    page.wait("document.body.innerText.includes('the episode is over')")
    keep = "[...document.querySelectorAll('button')].find((e) => e.innerText.startsWith('Keep'))"
    page.driver.execute_script(f"{keep}.click()")
    kept = json.loads(page.wait("window.text"))
    assert kept["seats"]["agent_1"] == "me"
    assert kept["turns"][-1]["actions"]["agent_1"] == "rock"
    assert page.ask("window.kept.download") == "rock_paper_scissors-0.json"


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True])
def test_a_run_is_watched_and_told_of_as_it_is_measured(dashboard, tmp_path, sampled):
    """Red before: policies of a run that is judged by exploring play were watched greedily."""
    run = shutil.copytree(fixed_run(), tmp_path / "run")
    file, best = run / "config.yaml", run / "checkpoints" / "best.json"
    assert file.read_text().count("evaluate_sampled: false") == 1
    if sampled:
        file.write_text(file.read_text().replace("_sampled: false", "_sampled: true"))
    number = RunDirectory.open(run).checkpoints.numbers()[-1]
    best.write_text(json.dumps({"checkpoint": number, "mean_return": 7.0, "sampled": sampled}))
    page = dashboard(tmp_path)
    page.open("#/run/run")
    page.wait(
        f"document.body.innerText.includes('best {'sampled' if sampled else 'greedy'} return')"
    )
    page.open("#/watch/run")
    page.wait("document.querySelector('.stage img')?.src.startsWith('data:image/png')")
    assert page.ask("document.getElementById('sampled').checked") is sampled


@pytest.mark.slow
def test_curves_are_asked_for_where_there_is_more_of_them(dashboard, tmp_path):
    run = made_run(tmp_path / "run")
    page = dashboard(tmp_path)
    page.open("#/run/run")
    page.wait("document.querySelectorAll('canvas').length >= 1")

    def asked(what):
        names = "performance.getEntriesByType('resource').map((each) => each.name)"
        return f"{names}.filter((name) => name.includes('/api/{what}')).length"

    curves, looks = page.ask(asked("curves?")), page.ask(asked("run?"))
    page.wait(f"{asked('run?')} >= {looks + 2}")
    assert page.ask(asked("curves?")) == curves
    with (run / "metrics.jsonl").open("a") as file:
        file.writelines(lines_of(7, loss=2.0))
    page.wait(f"{asked('curves?')} > {curves}")


@pytest.mark.slow
def test_what_nobody_sees_is_drawn_where_the_page_is_printed(dashboard, tmp_path):
    run = made_run(tmp_path / "run")
    page = dashboard(tmp_path)
    size = page.driver.get_window_size()
    page.driver.set_window_size(1000, 300)
    try:
        page.open("#/run/run")
        page.wait("document.querySelectorAll('section.card .chart canvas').length >= 3")
        greatest = (
            "[...document.querySelectorAll('section.card .chart')]"
            ".map((each) => window.echarts.getInstanceByDom(each))"
            ".map((chart) => chart.getOption().series[0].data.at(-1)[0])"
        )
        with (run / "metrics.jsonl").open("a") as file:
            file.writelines(lines_of(7, loss=2.0))
        page.wait(f"{greatest}[0] === 70")
        assert page.ask(greatest)[-1] == 50
        page.driver.print_page()
        assert set(page.ask(greatest)) == {70}
    finally:
        page.driver.set_window_size(size["width"], size["height"])


@pytest.mark.slow
def test_a_run_that_takes_no_requests_is_shown_and_offers_control_when_it_does(
    dashboard, driver, tmp_path
):
    """As one does that begins, or measures what it has learned."""
    run = made_run(tmp_path / "run")
    files = RunDirectory.open(run)
    files.lock()
    try:
        page = dashboard(tmp_path, "--control")
        page.open("#/run/run")
        page.wait("document.querySelectorAll('canvas').length >= 1")
        looks = "performance.getEntriesByType('resource').filter((e) => e.name.includes('control'))"
        page.wait(f"{looks}.length >= 2")
        assert not driver.find_element(By.CSS_SELECTOR, "[aria-label='Control']").is_displayed()
        config = load_config({"game": "treasure_hunt"})
        requests = Requests(run, ActiveRun(run, config, ("agent_0", "agent_1")), print)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and "Save a checkpoint" not in page.text():
            requests.poll()
            time.sleep(0.05)
        assert "Save a checkpoint" in page.text()
        requests.end()
    finally:
        files.unlock()
    driver.get_log("browser")  # refusals are answers that a browser calls errors


def test_a_page_changes_an_environment_option(dashboard, driver, tmp_path):
    run = made_run(tmp_path / "run")
    files = RunDirectory.open(run)
    files.lock()
    try:
        config = load_config({"game": "growing:Growing"})
        active = ActiveRun(run, config, ("agent_0",))
        options = LiveEnvOptions(EnvSpec.of("growing:Growing", {}))
        active.attach(None, None, options, lambda: 0)
        requests = Requests(run, active, print)

        def shows(words):
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until and words not in page.text():
                requests.poll()
                time.sleep(0.05)
            assert words in page.text()

        def set_length(text):
            field = driver.find_element(By.CSS_SELECTOR, "[aria-label='New value of the option']")
            field.clear()
            field.send_keys(text)
            driver.find_element(By.CSS_SELECTOR, "[aria-label='Set the option']").click()

        page = dashboard(tmp_path, "--control")
        page.open("#/run/run")
        shows("Save a checkpoint")
        field = driver.find_element(By.CSS_SELECTOR, "[aria-label='New value of the option']")
        assert field.get_attribute("value") == "3"
        set_length("8")
        shows("length: 8")
        assert active.env_options() == {"length": 8}
        set_length("tall")
        shows("refuses the option length = 'tall'")
        assert active.env_options() == {"length": 8}
        requests.end()
    finally:
        files.unlock()
    driver.get_log("browser")  # refusals are answers that a browser calls errors


CLOCK = """
let clock = 0, worked = 0;
window.waits = [];
performance.now = () => clock;
const pause = window.setTimeout;
window.setTimeout = (act, wait, ...given) => {
  if (wait >= 1000) window.waits.push([wait, worked]);
  if (wait >= 1000) worked = 0;
  return pause(act, wait, ...given);
};
const real = window.fetch, easy = Element.prototype.replaceChildren;
window.fetch = (...asked) => real(...asked).finally(() => { clock += window.late ?? 0; });
Element.prototype.replaceChildren = function (...given) {
  clock += window.labour ?? 0;
  worked += window.labour ?? 0;
  return easy.apply(this, given);
};
"""
"""A clock of the page's own: on it an answer and what is written anew take what the test says."""


@pytest.mark.slow
def test_a_page_that_costs_much_looks_less_often(dashboard, tmp_path):
    made_run(tmp_path / "run")
    page = dashboard(tmp_path)
    page.open("#/run/run")
    page.wait("document.querySelectorAll('canvas').length >= 1")

    def next_wait(late, labour):
        page.driver.execute_script(
            f"window.late = {late}; window.labour = {labour}; window.waits.length = 0;"
        )
        page.wait("window.waits.length >= 2")  # the first may be of a look under way
        return page.ask("window.waits[1]")

    page.driver.execute_script(CLOCK)
    assert next_wait(late=300, labour=0)[0] == 5000  # waiting costs nothing
    assert next_wait(late=0, labour=1000)[0] == 10_000
    wait, worked = next_wait(late=0, labour=40)
    assert 5000 < wait < 10_000
    assert wait == 50 * (worked - 40)  # what is written after the look is no work of it


@pytest.mark.slow
def test_a_view_that_was_left_writes_nothing_over_the_next(dashboard, tmp_path):
    made_run(tmp_path / "run")
    page = dashboard(tmp_path)
    page.open("#/")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.driver.execute_script("""
        const real = window.fetch;
        window.fetch = (...asked) => {
          if (!String(asked[0]).includes("/api/population")) return real(...asked);
          const late = new Promise((resolve) => { window.answer = resolve; });
          return late.then(() => real(...asked)).finally(() => { window.late = 1; });
        };
        location.hash = "#/population/run";
    """)
    page.wait("window.answer !== undefined")
    page.driver.execute_script("location.hash = '#/'")
    page.wait("document.querySelectorAll('tbody tr').length === 1")
    page.driver.execute_script("window.answer()")
    page.wait("window.late === 1")
    time.sleep(0.5)  # in which the late answer would be drawn
    assert page.ask("document.querySelector('#main h1').textContent").startswith("Runs")


FETCH = """
window.real ??= window.fetch;
window.fetch = (...asked) => {
  const address = String(asked[0]), curves = address.includes("/api/curves");
  if (curves && window.lose) { window.lose = 0; return Promise.reject(new TypeError("lost")); }
  if (!curves || !address.includes("axis=steps")) return window.real(...asked);
  const later = new Promise((resolve) => setTimeout(resolve, 2000));
  return later.then(() => window.real(...asked)).finally(() => { window.late = 1; });
};
"""
"""Loses an answer, and delays that of one axis."""


@pytest.mark.slow
def test_another_axis_is_drawn_even_where_an_answer_is_late_or_lost(dashboard, tmp_path):
    made_run(tmp_path / "run")
    page = dashboard(tmp_path)
    page.open("#/run/run")
    page.wait("document.querySelectorAll('canvas').length >= 1")
    greatest = (
        "window.echarts.getInstanceByDom(document.querySelector('section.card .chart'))"
        ".getOption().series[0].data.at(-1)[0]"
    )

    def choose(axis):
        which = "document.querySelector('[aria-label=\"Curves over\"]')"
        page.driver.execute_script(
            f"const s = {which}; s.value = '{axis}'; s.dispatchEvent(new Event('change'));"
        )

    page.wait(f"{greatest} === 50")  # turns
    page.driver.execute_script(f"window.lose = 1; {FETCH}")
    choose("seconds")
    page.wait(f"{greatest} === 2.5")
    choose("steps")
    choose("turns")
    page.wait("window.late === 1")
    time.sleep(0.5)  # in which the late answer would be drawn
    assert page.ask(greatest) == 50


HOSTILE = [
    "<img src=x onerror=window.harmed=1>",
    "<script>window.harmed=1</script>",
    "{b|bold}",
    "'\"&amp;",
]


@pytest.mark.slow
def test_names_are_never_html(dashboard, tmp_path):
    for i, name in enumerate(HOSTILE):
        run = made_run(tmp_path / name.replace("/", ""), game=name)
        record = {
            "seconds": 1.0,
            "turns": 10,
            "agent_steps": 10,
            "policies": {name: {"mean_return": i}},
        }
        record |= {"episode_metrics": {name: 1.0}, "shares": {name: 0.5}}
        (run / "metrics.jsonl").write_text((json.dumps(record) + "\n") * 3)
        (run / "logs").mkdir()
        (run / "logs" / "a.log").write_text(name)
    page = dashboard(tmp_path)
    page.open()
    page.wait(f"document.querySelectorAll('tbody tr').length === {len(HOSTILE)}")
    for box in page.driver.find_elements(By.CSS_SELECTOR, "tbody input"):
        box.click()
    page.wait("document.querySelectorAll('canvas').length >= 1")
    hrefs = page.ask(
        "[...document.querySelectorAll('tbody td a')].map(a => a.getAttribute('href'))"
    )
    for href in hrefs:
        page.open(href)
        page.wait("document.querySelectorAll('canvas').length >= 1")
        canvas = page.driver.find_element(By.CSS_SELECTOR, "canvas")
        webdriver.ActionChains(page.driver).move_to_element(canvas).perform()  # its tooltip
        assert page.ask("document.querySelectorAll('main img, main script').length") == 0
    assert page.ask("window.harmed") is None


@pytest.mark.slow
def test_it_can_be_used_by_keyboard_and_heard(dashboard):
    page = dashboard(real_runs())
    page.open()
    page.wait("document.querySelectorAll('tbody tr').length === 2")
    body = page.driver.find_element(By.TAG_NAME, "body")
    reached = []
    for _ in range(30):
        body.send_keys(Keys.TAB) if not reached else page.driver.switch_to.active_element.send_keys(
            Keys.TAB
        )
        active = page.driver.switch_to.active_element
        reached.append((active.tag_name, active.accessible_name))
    assert ("a", "Skip to the content") in reached
    assert ("input", "Filter runs") in reached
    assert ("input", "Compare fixed") in reached
    assert ("a", "fixed") in reached
    for page_name in ("", "#/run/fixed", "#/population/population", "#/watch/fixed"):
        page.open(page_name)
        page.wait(
            "document.querySelector('main h1')"
            " && !document.querySelector('main .quiet')?.innerText.startsWith('Loading')"
        )
        nameless = [
            element.get_attribute("outerHTML")
            for element in page.driver.find_elements(
                By.CSS_SELECTOR, "button, input, select, a, [role=img]"
            )
            if element.is_displayed() and not element.accessible_name
        ]
        assert nameless == []


@pytest.mark.slow
def test_what_is_not_there_is_told(dashboard):
    page = dashboard(real_runs())
    page.open("#/run/nowhere")
    page.wait("document.body.innerText.includes('there is no run')")
    page.driver.get_log("browser")  # the browser notes the 404 itself

"""The server answers to the person at this machine, and to nobody else."""

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pytest
import torch

import subtractive as sub
from subtractive.cli.main import main
from subtractive.explorer import launch
from subtractive.explorer.answers import Answers
from subtractive.explorer.launch import running


@pytest.fixture(scope="module")
def model():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["a", "b"])
    return sub.SubtractiveMixture(2, structure="binary", max_epochs=1, random_state=0).fit(frame)


@pytest.fixture(scope="module")
def address(model):
    with running(Answers.of(model, None, "file.model")) as (found, _):
        yield urlsplit(found)


def ask(address, method="GET", path=None, body=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    sent = {"Host": address.netloc, **headers}
    connection.request(method, path or address.path, body, sent)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_page_and_its_parts_are_served(address):
    answer, page = ask(address)
    assert answer.status == 200
    assert b"<title>Explorer</title>" in page
    for name in ("app.js", "style.css", "vendor/uPlot.js", "vendor/uPlot.LICENSE.txt"):
        assert ask(address, path=address.path + name)[0].status == 200


def test_answers_are_json(address):
    answer, content = ask(address, "POST", address.path + "api/curves", '{"given": {}}')
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert set(json.loads(content)["columns"]) == {"a", "b"}


@pytest.mark.parametrize("path", ["/", "/wrong/", "/wrong/api/page", "/api/page", "//x/", "/%00/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_there_is_nothing(address, method, path):
    answer, content = ask(address, method, path)
    assert answer.status == 403
    assert b"token" in content
    assert b"columns" not in content


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "evil:80", "", "[::1]", "0.0.0.0"]
)
def test_foreign_hosts_are_refused(address, host):
    answer, content = ask(address, Host=host)
    assert answer.status == 403
    assert b"127.0.0.1 and localhost only" in content


def test_the_other_name_of_this_machine_is_known(address):
    assert ask(address, Host=f"localhost:{address.port}")[0].status == 200


@pytest.mark.parametrize("origin", ["http://example.org", "null", "https://127.0.0.1"])
def test_other_sites_are_refused(address, origin):
    path = address.path + "api/curves"
    assert ask(address, "POST", path, "{}", Origin=origin)[0].status == 403
    own = f"http://{address.netloc}"
    answer, _ = ask(address, "POST", path, "{}", Origin=own)
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_preflight_of_another_site_grants_nothing(address):
    path, asked = address.path + "api/curves", {"Access-Control-Request-Method": "POST"}
    answer, _ = ask(address, "OPTIONS", path, Origin=f"http://{address.netloc}", **asked)
    assert answer.status == 405
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["", "app.js", "api/curves", "nothing"])
def test_every_answer_has_the_policy(address, path):
    answer, _ = ask(address, "POST" if "api" in path else "GET", address.path + path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"


def test_files_outside_of_the_page_are_not_served(address):
    for path in ("../server.py", "%2e%2e/server.py", "..%2fserver.py", "vendor/../../server.py"):
        assert ask(address, path=address.path + path)[0].status in (403, 404)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("not json", 400, "a request is a JSON object"),
        ("[1]", 422, "a request is a JSON object"),
        ('{"given": {"c": {"value": 1}}}', 422, "there is no column 'c'"),
        ('{"given": {"a": {"value": 1}, "b": {"value": 1}}}', 422, "leave at least one column"),
        (" " * 1_000_001, 400, "at most 1,000,000 bytes"),
    ],
)
def test_bad_requests_are_told_why(address, body, status, message):
    answer, content = ask(address, "POST", address.path + "api/curves", body)
    assert answer.status == status
    assert message in json.loads(content)["error"]


def test_the_server_listens_on_this_machine_only(address):
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None)}
    for host in others - {"127.0.0.1", "::1"}:
        with pytest.raises(OSError):  # noqa: PT011 - refused, or unreachable
            socket.create_connection((host, address.port), timeout=2)
    with pytest.raises(ValueError, match=f"port {address.port} cannot be used"):
        with running(None, port=address.port):
            pass


def test_tokens_differ(model):
    answers = Answers.of(model, None, None)
    with running(answers) as (one, _), running(answers) as (other, _):
        tokens = {urlsplit(found).path for found in (one, other)}
    assert len(tokens) == 2
    assert min(map(len, tokens)) > 30


def test_the_command_serves_a_model_and_a_table(model, tmp_path, capsys, monkeypatch):
    frame = pd.DataFrame({"extra": ["x", "y"], "b": [0.0, 1.0], "a": [1.0, 2.0]})
    frame.to_csv(tmp_path / "data.csv", index=False)
    model.save(tmp_path / "file.model")
    seen = []

    def open_and_interrupt(link):
        parts = urlsplit(link)
        answer, content = ask(parts, "POST", parts.path + "api/page", "{}")
        seen.append((answer.status, json.loads(content)))
        raise KeyboardInterrupt  # as Ctrl-C does

    monkeypatch.setattr(launch.webbrowser, "open", open_and_interrupt)
    code = main(["explore", str(tmp_path / "file.model"), str(tmp_path / "data.csv")])
    assert code == 0
    assert "the explorer is at http://127.0.0.1:" in capsys.readouterr().out
    [(status, page)] = seen
    assert (status, page["rows"]) == (200, 2)
    assert page["model"] == str(tmp_path / "file.model")


class Busy:
    """Answers whose slow ones compute until they are told to end."""

    def __init__(self, answers):
        self.answers, self.steps, self.end = answers, 0, False

    def __getattr__(self, name):
        return getattr(self.answers, name)

    def joint(self, request):
        while not self.end:
            torch.ones(10).sum()
            self.steps += 1
        return {"ended": True}

    def curves(self, request):
        before = self.steps
        time.sleep(0.3)
        return {"steps": self.steps - before}


@pytest.fixture
def busy(model):
    answers = Busy(Answers.of(model, None, None))
    with running(answers) as (found, _):
        yield answers, urlsplit(found)
        answers.end = True


def wait_until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_slower_answers_pause_while_curves_are_computed(busy):
    answers, address = busy
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(ask, address, "POST", address.path + "api/joint", "{}")
        assert wait_until(lambda: answers.steps > 100)
        _, content = ask(address, "POST", address.path + "api/curves", "{}")
        assert json.loads(content)["steps"] <= 1  # the one that had begun
        reached = answers.steps
        assert wait_until(lambda: answers.steps > reached + 100)  # and go on afterwards
        answers.end = True
        assert json.loads(slow.result()[1]) == {"ended": True}


def test_an_answer_that_nobody_waits_for_is_not_computed_further(busy):
    answers, address = busy
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=30)
    connection.request("POST", address.path + "api/joint", "{}", {"Host": address.netloc})
    assert wait_until(lambda: answers.steps > 100)
    connection.close()

    def stands_still():
        before = answers.steps
        time.sleep(0.1)
        return answers.steps == before

    assert wait_until(stands_still)
    # The next one has its turn.
    answer, content = ask(address, "POST", address.path + "api/samples", '{"given": {}}')
    assert answer.status == 200
    assert len(json.loads(content)["rows"]) == 6

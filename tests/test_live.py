"""The whole of it: README's commands, a real server, real models, workers killed."""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from scripts.running import Running, server

ROOT = Path(__file__).resolve().parents[1]
RECEIPT = ROOT / "examples" / "receipt.png"
LINES = ("CORNER BAKERY", "12 Mill Street", "Rye bread", "10.40", "Paid by card")


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with server() as running:
        yield running


def ask(live: Running, **options: str) -> httpx.Response:
    return httpx.post(
        f"{live.url}/v1/ocr", content=RECEIPT.read_bytes(), params=options, timeout=60
    )


def test_the_command_of_the_readme_reads_the_receipt(live: Running) -> None:
    readme = (ROOT / "README.md").read_text()
    command = next(line for line in readme.splitlines() if line.startswith("curl "))
    command = command.replace("http://127.0.0.1:8080", live.url)
    answer = subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert not [line for line in LINES if line not in answer.stdout]


def test_the_python_snippet_of_the_readme_reads_the_receipt(live: Running) -> None:
    readme = (ROOT / "README.md").read_text()
    program = (
        readme.split("```python\n")[1].split("```")[0].replace("http://127.0.0.1:8080", live.url)
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert "CORNER BAKERY" in answer.stdout


def test_the_example_client_reads_the_receipt(live: Running) -> None:
    command = [sys.executable, "examples/client.py", "examples/receipt.png", live.url]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    assert "CORNER BAKERY" in answer.stdout


def test_lines_stand_where_they_are_on_the_page(live: Running) -> None:
    (page,) = ask(live).json()["pages"]
    assert (page["width"], page["height"], page["turn"]) == (520, 640, 0)
    total = next(line for line in page["lines"] if line["text"] == "TOTAL")
    left, top, right, bottom = total["box"]
    assert 40 < left < 60
    assert 370 < top < bottom < 430
    assert total["confidence"] > 0.9
    assert right < 200


def test_words_stand_inside_their_lines(live: Running) -> None:
    (page,) = ask(live, words="true").json()["pages"]
    line = next(line for line in page["lines"] if line["text"] == "12 Mill Street")
    assert [word["text"] for word in line["words"]] == ["12", "Mill", "Street"]
    starts = [word["polygon"][0][0] for word in line["words"]]
    assert starts == sorted(starts)


@pytest.mark.parametrize("turn", [90, 180, 270])
def test_a_turned_page_is_read_right(live: Running, turn: int) -> None:
    from io import BytesIO

    from PIL import Image

    out = BytesIO()
    with Image.open(RECEIPT) as receipt:
        receipt.rotate(turn, expand=True).save(out, "PNG")  # counter-clockwise
    reply = httpx.post(f"{live.url}/v1/ocr", content=out.getvalue(), timeout=60)
    (page,) = reply.json()["pages"]
    assert page["turn"] == turn
    texts = [line["text"] for line in page["lines"]]
    assert texts[0] == "CORNER BAKERY"
    assert not [line for line in LINES if line not in texts]


def test_both_contracts_read_the_same(live: Running) -> None:
    body = {"file": base64.b64encode(RECEIPT.read_bytes()).decode(), "textRecScoreThresh": 0.5}
    paddlex = httpx.post(f"{live.url}/ocr", json=body, timeout=60).json()
    pruned = paddlex["result"]["ocrResults"][0]["prunedResult"]
    native = ask(live).json()["pages"][0]["lines"]
    assert pruned["rec_texts"] == [line["text"] for line in native]
    assert paddlex["errorCode"] == 0


@pytest.mark.chaos
def test_answers_are_the_same_alone_and_while_workers_are_killed(live: Running) -> None:
    def body(_: object = None) -> list[dict[str, object]]:
        reply = ask(live)
        assert reply.status_code == 200, reply.text
        pages: list[dict[str, object]] = reply.json()["pages"]
        return pages

    alone = body()
    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(body, range(8))
        os.kill(live.workers()[0], signal.SIGKILL)
        assert all(answer == alone for answer in answers)
    metrics = httpx.get(f"{live.url}/metrics").text
    assert 'pagemill_worker_restarts_total{cause="killed"} 1.0' in metrics


def test_the_health_of_a_ready_server(live: Running) -> None:
    health = httpx.get(f"{live.url}/health").json()
    assert health["errorCode"] == 0
    assert health["status"] == "ok"
    assert health["model_loaded"] is True


def test_sigterm_ends_the_server_and_its_workers() -> None:
    with server() as running:
        workers = running.workers()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_a_taken_port_is_told_with_the_fix(live: Running) -> None:
    port = live.url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "pagemill.cli", "serve", "--port", port]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 65
    assert "--port" in refused.stderr


def test_the_command_line_reads_a_folder_and_skips_what_is_done(tmp_path: Path) -> None:
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    (scans / "receipt.png").write_bytes(RECEIPT.read_bytes())
    (scans / "notes.txt").write_text("not a document")
    (scans / "broken.png").write_bytes(RECEIPT.read_bytes()[:2000])
    command = [sys.executable, "-m", "pagemill.cli", "ocr", str(scans), "-o", str(out), "--json"]
    first = subprocess.run(command, check=False, capture_output=True, text=True)
    assert first.returncode == 1
    assert "broken.png" in first.stderr
    assert "damaged_input" in first.stderr
    (answer,) = [path for path in out.rglob("*") if path.is_file()]
    assert answer.name == "receipt.png.json"
    texts = [line["text"] for line in json.loads(answer.read_text())["pages"][0]["lines"]]
    assert "CORNER BAKERY" in texts
    (scans / "broken.png").unlink()
    second = subprocess.run(command, check=False, capture_output=True, text=True)
    assert second.returncode == 0
    assert "1 skipped" in second.stderr

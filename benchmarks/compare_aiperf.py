"""asperf's clock and AIPerf's, request by request: python compare_aiperf.py AIPERF URL TOKENIZER.

AIPerf sends its requests through a relay, which stamps each read of the reply as our client does
and passes it on. So each request is timed by both, and is found by the id of AIPerf. The figures of
AIPerf have the second hop of the relay in them.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from timing import table

from pytest_asperf.analysis import serving_metrics as metrics
from pytest_asperf.analysis.serving_metrics import ServedRequest
from pytest_asperf.worker.serving.client import framing_of
from pytest_asperf.worker.serving.events import read_reply, request_facts
from pytest_asperf.worker.serving.record import Endpoint, StreamRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_asperf.worker.serving.client import Framing

#: AIPerf starts ten processes, which is slow on a busy machine.
_TIMEOUT_S = 240
_END = b"\r\n\r\n"


def main() -> None:
    """Run AIPerf with 1 and with 4 users, and print how far its figures are from ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("aiperf", help="the program aiperf")
    parser.add_argument("url", help="a llama-server with the prompt cache off")
    parser.add_argument("tokenizer", help="a folder with the model's tokenizer")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--users", type=int, nargs="+", default=[1, 4])
    args = parser.parse_args()
    rows = []
    for users in args.users:
        relay = Relay(Endpoint.parse(args.url))
        records = _aiperf(args, relay.port, users)
        both = [(relay.timed[key], record) for key, record in records if key in relay.timed]
        rows += [[str(users), *row] for row in _compared(both)]
    print("## AIPerf on the same requests\n")
    head = [
        "users",
        "figure",
        "requests",
        "ours, ms",
        "AIPerf, ms",
        "AIPerf - ours, ms (quartiles)",
    ]
    print(table(head, rows))


class Relay:
    """Passes requests on to a server, and stamps the replies."""

    def __init__(self, server: Endpoint) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.timed: dict[str, ServedRequest] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        """Pass on the requests of one connection, one after the other."""
        with suppress(OSError), client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := _read_request(client):
                self._pass_one(client, request)

    def _pass_one(self, client: socket.socket, request: bytes) -> None:
        address = (self._server.host, self._server.port)
        reads: list[tuple[int, bytes]] = []
        framing: Framing | None = None
        tail = b""
        with socket.create_connection(address) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sent_ns = perf_counter_ns()
            server.sendall(request)
            while data := server.recv(65536):
                now = perf_counter_ns()
                client.sendall(data)
                tail = (tail + data)[-len(_END) :]
                if framing is None:
                    head, _, data = data.partition(_END)
                    names = ("transfer-encoding", "content-length")
                    framing = framing_of({name: _header(head, name.encode()) for name in names})
                reads.append((now, framing.feed(data)))
                if framing.is_complete and (tail == _END or framing.mark == ()):
                    self._keep(request, sent_ns, reads)
                    return

    def _keep(self, request: bytes, sent_ns: int, reads: Sequence[tuple[int, bytes]]) -> None:
        if not (key := _header(request, b"x-request-id")):
            return
        headers = (("content-type", "text/event-stream"),)
        now = perf_counter_ns()
        chunks = tuple(read for read in reads if read[1])
        record = StreamRecord(
            sent_ns, sent_ns, reads[0][0], chunks, now, 200, headers, cpu_ns=0, fault=None
        )
        self.timed[key] = ServedRequest(**request_facts(record, read_reply(record)))


def _read_request(client: socket.socket) -> bytes:
    data = b""
    while _END not in data:
        if not (more := client.recv(65536)):
            return b""
        data += more
    length = int(_header(data, b"content-length") or 0)
    whole = data.index(_END) + len(_END) + length
    while len(data) < whole:
        data += client.recv(65536)
    return data


def _header(request: bytes, name: bytes) -> str:
    for line in request.partition(_END)[0].split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().decode()
    return ""


def _aiperf(args: argparse.Namespace, port: int, users: int) -> list[tuple[str, dict[str, Any]]]:
    """Each request's id and figures."""
    with tempfile.TemporaryDirectory() as folder:
        options = {
            "--url": f"http://127.0.0.1:{port}", "--model": "asperf-target",
            "--endpoint-type": "completions", "--tokenizer": args.tokenizer,
            "--concurrency": users, "--request-count": args.requests,
            "--synthetic-input-tokens-mean": 128, "--output-tokens-mean": 64,
            "--artifact-dir": folder, "--ui": "none", "--random-seed": users,
        }  # fmt: skip
        words = [str(word) for option in options.items() for word in option]
        extra = ["--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--streaming"]
        subprocess.run(
            [args.aiperf, "profile", *words, *extra],
            check=True, timeout=_TIMEOUT_S, stdout=subprocess.DEVNULL, cwd=folder,
        )  # fmt: skip
        lines = Path(folder, "profile_export.jsonl").read_text("utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [(record["metadata"]["x_request_id"], record["metrics"]) for record in records]


def _compared(both: Sequence[tuple[ServedRequest, dict[str, Any]]]) -> list[list[str]]:
    """A row for each figure that both define alike."""
    figures = {
        "TTFT": (metrics.ttft_ns, "time_to_first_token"),
        "E2E": (metrics.e2e_ns, "request_latency"),
        "TPOT": (metrics.tpot_ns, "inter_token_latency"),
    }
    rows = []
    for name, (of, field) in figures.items():
        pairs = [(of(ours) / 1e6, theirs[field]["value"]) for ours, theirs in both]
        differences = statistics.quantiles([b - a for a, b in pairs], n=4)
        middles = [statistics.median(column) for column in zip(*pairs, strict=True)]
        texts = [f"{value:.3f}" for value in middles]
        low, middle, high = (f"{value:+.3f}" for value in differences)
        rows.append([name, str(len(pairs)), *texts, f"{middle} ({low} to {high})"])
    gaps = [
        [statistics.median(gaps) for gaps in ([g / 1e6 for g in metrics.itl_ns(ours)], theirs)]
        for ours, theirs in ((o, t["inter_chunk_latency"]["value"]) for o, t in both)
    ]
    middles = [statistics.median(column) for column in zip(*gaps, strict=True)]
    low, middle, high = (f"{v:+.3f}" for v in statistics.quantiles([b - a for a, b in gaps], n=4))
    texts = [f"{value:.3f}" for value in middles]
    return [
        *rows,
        ["ITL, median of a reply", str(len(gaps)), *texts, f"{middle} ({low} to {high})"],
    ]


if __name__ == "__main__":
    main()

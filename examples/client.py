"""Reads a document with a running server, through the PaddleX contract.

python examples/client.py examples/receipt.png http://127.0.0.1:8080
"""

import base64
import json
import sys
import urllib.request
from pathlib import Path

path, server = Path(sys.argv[1]), sys.argv[2].rstrip("/")
body = {"file": base64.b64encode(path.read_bytes()).decode(), "visualize": False}
request = urllib.request.Request(  # noqa: S310 - the caller names the server
    f"{server}/ocr", json.dumps(body).encode(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(request) as reply:  # noqa: S310 - likewise
    answer = json.load(reply)
for page in answer["result"]["ocrResults"]:
    print("\n".join(page["prunedResult"]["rec_texts"]))

"""A browser's part, towards a real server of the dashboard in a thread of the test's process."""

import contextlib
import http.client
import json
import threading
import time
from urllib.parse import urlencode

from remuda.ui.dashboard.server import Server

HOST = "127.0.0.1:8700"
"""Under which name the server is asked, whatever port it has."""
OWN = {"origin": f"http://{HOST}"}
PATIENCE = 120.0


class Answer:
    """What the server said."""

    def __init__(self, status, headers, body):
        self.status_code, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers}

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


class Client:
    """Asks a server, which lives as long as the `with`; it keeps a cookie, and follows nothing."""

    def __init__(self, app, host=HOST):
        self._server, self._host, self._cookie = Server(app, host="127.0.0.1", port=0), host, None
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self):
        self._thread.start()
        until = time.monotonic() + PATIENCE
        while not self._server.started and time.monotonic() < until:
            time.sleep(0.01)
        self._port = self._server.servers[0].sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_):
        self._server.should_exit = True
        self._thread.join()

    def request(self, method, path, params=None, content=None, headers=None):
        query = f"?{urlencode(params, doseq=True)}" if params else ""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        sent = {"host": self._host, "connection": "close", "x-remuda": "1"}
        if self._cookie:
            sent["cookie"] = self._cookie
        sent |= headers or {}
        if content is not None:
            content = content.encode() if isinstance(content, str) else content
            sent["content-length"] = str(len(content))
        connection.putrequest(method, path + query, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value is None:
                continue
            connection.putheader(name, value)
        with contextlib.suppress(BrokenPipeError):  # it was refused before all of it was read
            connection.endheaders(content)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.getheaders(), answer.read())
        connection.close()
        if "set-cookie" in found.headers:
            self._cookie = found.headers["set-cookie"].split(";")[0]
        return found

    def get(self, path, params=None, headers=None):
        return self.request("GET", path, params, headers=headers)

    def post(self, path, content=None, headers=None):
        return self.request("POST", path, content=content, headers=headers)

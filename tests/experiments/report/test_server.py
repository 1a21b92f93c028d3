"""`--serve`: for this machine alone, and rebuilt when there are new records."""

import http.client
import threading

import pytest

from experiments import records
from experiments.report.server import ADDRESS, Server
from jaxcnn.errors import InputError
from tests.support import four_accelerators as four


@pytest.fixture
def server(tmp_path):
    server = Server([tmp_path], 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def get(server: Server, path: str, host: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_new_records_are_on_the_page_that_is_served(server, tmp_path):
    status, empty = get(server, "/")
    assert status == 200 and "There are no records yet" in empty
    _, version = get(server, "/version")
    assert f'data-version="{version}"' in empty and "connect-src 'self'" in empty
    records.write(four.records()[0], tmp_path)
    _, newer = get(server, "/version")
    assert newer != version
    _, page = get(server, "/")
    assert "AMD EPYC 7B12 (synthetic)" in page and f'data-version="{newer}"' in page


def test_only_this_machine_and_only_the_page(server):
    assert server.server_address[0] == ADDRESS == "127.0.0.1"
    assert get(server, "/", host="attacker.example:8000")[0] == 403
    assert get(server, "/", host=f"localhost:{server.server_address[1]}")[0] == 200
    assert get(server, "/", host="localhost")[0] == 200, "as for port 80"
    assert get(server, "/../../etc/passwd")[0] == 404


def test_a_port_in_use_is_named(server, tmp_path):
    port = server.server_address[1]
    with pytest.raises(InputError, match=f"--port={port}: .*; choose another"):
        Server([tmp_path], port)
    with pytest.raises(InputError, match="--port=70000"):
        Server([tmp_path], 70_000)

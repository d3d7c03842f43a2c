"""Without TLS only what stays on this machine, and only if it is typed; with TLS nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from swiftfl.cli.main import run_command
from swiftfl.errors import UserError
from swiftfl.transports.zenoh.settings import Credentials, LinkSettings, configuration

FILES = Credentials(Path("authority.pem"), Path("certificate.pem"), Path("key.pem"))
PLAIN = LinkSettings("f" * 32, "a", {"b": "b~1234"}, ["tcp/127.0.0.1:7447"], ["tcp/localhost:7448"])
SECURE = replace(PLAIN, listen=["tls/0.0.0.0:7447"], dial=["tls/b.example:7447"], credentials=FILES)


@pytest.mark.parametrize("address", ["tcp/0.0.0.0:7447", "tcp/10.0.0.1:7447", "tls/127.0.0.1:7447"])
@pytest.mark.parametrize("side", ["listen", "dial"])
def test_without_tls_every_address_is_of_this_machine(address: str, side: str) -> None:
    assert configuration(PLAIN)["listen"]["endpoints"] == ["tcp/127.0.0.1:7447"]
    with pytest.raises(UserError, match="--insecure is for one machine"):
        configuration(replace(PLAIN, **{side: [address]}))


@pytest.mark.parametrize("side", ["listen", "dial"])
def test_with_certificates_nothing_goes_without_tls(side: str) -> None:
    found = configuration(SECURE)
    assert found["transport"]["link"]["tls"]["enable_mtls"] is True
    assert found["access_control"]["default_permission"] == "deny"
    with pytest.raises(UserError, match="without TLS"):
        configuration(replace(SECURE, **{side: ["tcp/127.0.0.1:7447"]}))


def test_insecure_must_be_typed_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["federation", "init", str(tmp_path / "x"), "--nodes", "a,b", "--insecure"]) == 0
    capsys.readouterr()
    node = str(tmp_path / "x" / "a" / "node.yaml")
    assert run_command(["node", node]) != 0
    assert "type --insecure, too" in capsys.readouterr().err
    assert run_command(["node", node, "--insecure"]) != 0  # it has no experiment; but it has warned
    said = capsys.readouterr().err
    assert "INSECURE: no TLS" in said
    assert "names no experiment" in said

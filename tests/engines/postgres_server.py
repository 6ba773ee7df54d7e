"""A PostgreSQL server on the loopback interface, for as long as a test session lasts."""

import os
import pwd
import shutil
import socket
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest


def server_programs():
    """The folder of initdb and pg_ctl. Without one the test is skipped, unless MANYARMS_ALL_TESTS is set."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    program = str(folders[-1]) if folders else shutil.which("pg_ctl")
    if program is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no PostgreSQL server, and MANYARMS_ALL_TESTS is set")
        pytest.skip("there is no PostgreSQL server")
    return Path(program).parent


@contextmanager
def running_server(folder):
    """Start a server with an empty database, yield its address and end it."""
    programs, data = server_programs(), folder / "data"
    # PostgreSQL refuses to run as root; Debian's package comes with a user of its own.
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_user:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        for parent in folder.parents[:3]:
            parent.chmod(parent.stat().st_mode | 0o011)

    def run(*command):
        subprocess.run([*as_user, *map(str, command)], check=True, capture_output=True, cwd="/")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run(programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgres://tester@127.0.0.1:{port}/postgres"
    finally:
        run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")

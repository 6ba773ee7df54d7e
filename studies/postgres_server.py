"""A PostgreSQL server on the loopback interface, for as long as a test session or a study lasts."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "for-tests"


def server_programs():
    """The folder of initdb and pg_ctl; None where there is no PostgreSQL."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    program = str(programs[-1]) if programs else shutil.which("pg_ctl")
    return None if program is None else Path(program).parent


@contextmanager
def running_server():
    """Start a server with an empty database that wants a password, yield its address and stop it."""
    programs = server_programs()
    assert programs is not None, "install the package postgresql"
    # Not in a folder of pytest, which closes its folders to other users whenever it starts.
    with (
        tempfile.TemporaryDirectory(prefix="manyarms-postgres-") as folder,
        _server_in(Path(folder), programs) as address,
    ):
        yield address


@contextmanager
def _server_in(folder, programs):
    data, secret = folder / "data", folder / "password"
    secret.write_text(PASSWORD)
    # PostgreSQL refuses to run as root; Debian's package comes with a user of its own.
    as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    if as_user:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)

    def run(*command):
        subprocess.run([*as_user, *map(str, command)], check=True, capture_output=True, cwd="/")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run(programs / "initdb", "-D", data, "-A", "scram-sha-256", "-U", "tester", f"--pwfile={secret}", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off"
    run(programs / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options, "start")
    try:
        yield f"postgres://tester:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        run(programs / "pg_ctl", "-D", data, "-m", "immediate", "stop")

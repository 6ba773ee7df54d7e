"""BLAS threads while several passes run side by side."""

import threading

from manyarms.linalg import threads


def test_threads_are_back_after_work_beside_others():
    gate, done = threading.Barrier(2), []

    def work(first):
        with threads.on_one_core():
            gate.wait()
            if first:
                done.append(True)
        gate.wait()

    pair = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    [thread.start() for thread in pair]
    [thread.join() for thread in pair]
    assert threads._users.beside_others == 0 and not threads._users.alone and done

"""The protocol between a program's runtime and the server."""

import os
import socket
from collections.abc import Iterator

import pytest

from simwarp.exec.protocol import (
    Kind,
    ProtocolError,
    Reply,
    Request,
    c_header,
    pack_request,
    receive,
    send,
    unpack_reply,
)

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_request_comes_with_its_arguments_and_data(ends: Ends) -> None:
    ours, theirs = ends
    theirs.sendall(pack_request(Request.WRITE, [1, 2, 2**64 - 1], b"rows"))
    message = receive(ours)
    assert message is not None
    assert (message.request, list(message.arguments), message.data) == (
        Request.WRITE,
        [1, 2, 2**64 - 1, 0, 0, 0],
        b"rows",
    )
    assert message.descriptor is None


def test_a_file_descriptor_comes_with_its_request(ends: Ends) -> None:
    ours, theirs = ends
    file = os.memfd_create("test")
    os.write(file, b"page")
    socket.send_fds(theirs, [pack_request(Request.SHARE, [4])], [file])
    os.close(file)
    message = receive(ours)
    assert message is not None
    assert message.descriptor is not None
    assert os.pread(message.descriptor, 8, 0) == b"page"
    os.close(message.descriptor)


def test_a_reply_comes_back_whole(ends: Ends) -> None:
    ours, theirs = ends
    send(ours, Reply(700, [1, 2], b"data", "printed é"))
    found = unpack_reply(theirs)
    assert found is not None
    assert (found.error, list(found.values), found.data, found.text) == (
        700,
        [1, 2, 0, 0, 0],
        b"data",
        "printed é",
    )


@pytest.mark.parametrize("sent", [0, 10, 56, 58])
def test_a_program_that_ends_in_a_request_leaves_none(ends: Ends, sent: int) -> None:
    ours, theirs = ends
    theirs.sendall(pack_request(Request.WRITE, [1], b"rows")[:sent])
    theirs.close()
    assert receive(ours) is None


def test_an_unknown_request_is_refused(ends: Ends) -> None:
    ours, theirs = ends
    theirs.sendall(pack_request(9999))
    with pytest.raises(ProtocolError, match="request 9999"):
        receive(ours)


def test_the_header_of_the_runtime_has_every_request_and_kind() -> None:
    header = c_header()
    for request in Request:
        assert f"ASK_{request.name} = {request.value}," in header
    for kind in Kind:
        assert f"KIND_{kind.name} = {kind.value}," in header

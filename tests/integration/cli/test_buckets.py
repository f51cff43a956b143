"""Origins in front of buckets, and buckets by themselves, by the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.unit.payload.origins import BUCKET, environment_of, s3


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3() as url:
        yield url


def asked(p2p: CommandLine, origin: str, **environment: str) -> dict[str, str]:
    """What `doctor` finds of an origin."""
    found = p2p("doctor", "--json", check=None, real=True, P2PQUEUE_ORIGIN=origin, P2PQUEUE_DISCOVERY="false", **environment)
    (told,) = [each for each in found.json["checks"] if each["check"] == "origin"]
    return dict(told)


def test_a_bucket_is_asked_for_what_it_lists(p2p: CommandLine, endpoint: str) -> None:
    keys = environment_of(endpoint)
    assert asked(p2p, f"s3://{BUCKET}/x", **keys)["words"] == f"s3://{BUCKET}/x answers and takes the keys"
    none = asked(p2p, "s3://none-such/x", **keys)
    assert (none["verdict"], "is not there" in none["words"]) == ("wrong", True)
    gone = asked(p2p, f"s3://{BUCKET}/x", **environment_of("http://127.0.0.1:9"))
    assert (gone["verdict"], "can't be reached" in gone["words"]) == ("warning", True)


def test_an_origin_in_front_of_a_bucket_has_the_same_token_after_every_start(p2p: CommandLine, endpoint: str) -> None:
    urls = []
    for words in (["--store", f"s3://{BUCKET}/x"], ["--store", f"s3://{BUCKET}/x/", "--sign"]):
        other = CommandLine(p2p.home, {**p2p.environment, **environment_of(endpoint)})
        process = other.start("origin", *words, "--listen", "127.0.0.1:0", "--json")
        try:
            assert process.stdout is not None
            urls.append(json.loads(process.stdout.readline())["url"])
        finally:
            process.terminate()
            process.communicate()
    tokens = {url.partition("@")[0] for url in urls}
    assert len(tokens) == 1


def test_a_bucket_that_can_not_be_used_is_told_in_words_and_nothing_is_served(p2p: CommandLine, endpoint: str) -> None:
    other = CommandLine(p2p.home, {**p2p.environment, **environment_of(endpoint)})
    process = other.start("origin", "--store", "s3://none-such", "--listen", "127.0.0.1:0")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert (out, "Traceback" in err) == ("", False)
    assert "the bucket s3://none-such is not there" in err
    process = other.start("origin", "--store", "ftp://somewhere/x", "--listen", "127.0.0.1:0")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "s3://BUCKET/PREFIX" in err

"""The lock: codes that work once, sessions that end, and no secret that could be guessed."""

from otel_lightning.collector.page.lock import (
    CODE_SECONDS,
    MOST_SESSIONS,
    SESSION_SECONDS,
    Lock,
)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def locked() -> tuple[Lock, Clock]:
    clock = Clock()
    return Lock(("secret",), "page_1", clock), clock


def test_a_code_opens_once_and_for_a_minute_only() -> None:
    lock, clock = locked()
    code, late = lock.new_code(), lock.new_code()
    assert (lock.take(code), lock.take(code)) == (True, False)
    clock.now = CODE_SECONDS
    assert not lock.take(late)
    assert not lock.take("")


def test_a_session_is_known_until_it_is_forgotten() -> None:
    lock, _ = locked()
    cookies = f"other=1; page_1={lock.new_session()}"
    assert lock.knows(cookies)
    lock.forget(cookies)
    assert not lock.knows(cookies)


def test_a_session_ends_when_nobody_uses_it() -> None:
    lock, clock = locked()
    used, unused = (f"page_1={lock.new_session()}" for _ in range(2))
    clock.now = SESSION_SECONDS - 1
    assert lock.knows(used)
    clock.now = SESSION_SECONDS + 1
    assert (lock.knows(used), lock.knows(unused)) == (True, False)


def test_a_cookie_of_another_name_or_of_another_lock_opens_nothing() -> None:
    lock, _ = locked()
    secret = lock.new_session()
    other = Lock(("secret",), "page_1")
    for cookies in (None, "", f"page_2={secret}", "page_1=", "page_1=x", "\x00=;;=", "page_1"):
        assert not lock.knows(cookies)
    assert not other.knows(f"page_1={secret}")


def test_the_oldest_session_makes_room_for_a_new_one() -> None:
    lock, clock = locked()
    sessions = []
    for _ in range(MOST_SESSIONS + 1):
        clock.now += 1
        sessions.append(f"page_1={lock.new_session()}")
    assert [lock.knows(one) for one in sessions] == [False] + [True] * MOST_SESSIONS


def test_the_cookie_is_kept_from_scripts_other_sites_and_other_paths() -> None:
    lock, _ = locked()
    parts = lock.header("s", tls=True).split("; ")
    assert set(parts[1:]) == {"Path=/ui", "HttpOnly", "SameSite=Strict", "Secure"}
    assert "Secure" not in lock.header("s", tls=False)


def test_only_a_token_of_the_lock_opens_it() -> None:
    lock, _ = locked()
    assert [lock.opens(token) for token in ("secret", "secre", "", "secret ")] == [
        True, False, False, False,
    ]  # fmt: skip

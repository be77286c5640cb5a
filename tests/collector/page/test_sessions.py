"""Sessions of the page: codes that work once, sessions that end, and no secret to guess."""

from otel_lightning.collector.page.sessions import (
    CODE_SECONDS,
    MOST_SESSIONS,
    SESSION_SECONDS,
    Sessions,
)


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def signed_out() -> tuple[Sessions, Clock]:
    clock = Clock()
    return Sessions(("secret",), "page_1", clock), clock


def test_a_code_opens_once_and_for_a_minute_only() -> None:
    sessions, clock = signed_out()
    code, late = sessions.new_code(), sessions.new_code()
    assert (sessions.take(code), sessions.take(code)) == (True, False)
    clock.now = CODE_SECONDS
    assert not sessions.take(late)
    assert not sessions.take("")


def test_a_session_is_known_until_it_is_forgotten() -> None:
    sessions, _ = signed_out()
    cookies = f"other=1; page_1={sessions.new_session()}"
    assert sessions.knows(cookies)
    sessions.forget(cookies)
    assert not sessions.knows(cookies)


def test_a_session_ends_when_nobody_uses_it() -> None:
    sessions, clock = signed_out()
    used, unused = (f"page_1={sessions.new_session()}" for _ in range(2))
    clock.now = SESSION_SECONDS - 1
    assert sessions.knows(used)
    clock.now = SESSION_SECONDS + 1
    assert (sessions.knows(used), sessions.knows(unused)) == (True, False)


def test_a_cookie_of_another_name_or_of_another_lock_opens_nothing() -> None:
    sessions, _ = signed_out()
    secret = sessions.new_session()
    other = Sessions(("secret",), "page_1")
    for cookies in (None, "", f"page_2={secret}", "page_1=", "page_1=x", "\x00=;;=", "page_1"):
        assert not sessions.knows(cookies)
    assert not other.knows(f"page_1={secret}")


def test_the_oldest_session_makes_room_for_a_new_one() -> None:
    sessions, clock = signed_out()
    cookies = []
    for _ in range(MOST_SESSIONS + 1):
        clock.now += 1
        cookies.append(f"page_1={sessions.new_session()}")
    assert [sessions.knows(one) for one in cookies] == [False] + [True] * MOST_SESSIONS


def test_the_cookie_is_kept_from_scripts_other_sites_and_other_paths() -> None:
    sessions, _ = signed_out()
    parts = sessions.header("s", tls=True).split("; ")
    assert set(parts[1:]) == {"Path=/ui", "HttpOnly", "SameSite=Strict", "Secure"}
    assert "Secure" not in sessions.header("s", tls=False)


def test_only_a_token_of_the_lock_opens_it() -> None:
    sessions, _ = signed_out()
    assert [sessions.opens(token) for token in ("secret", "secre", "", "secret ")] == [
        True, False, False, False,
    ]  # fmt: skip

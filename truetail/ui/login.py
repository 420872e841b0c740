"""Who may see the pages: one user whose name and password come from the environment. Used by Locust's UI and by the desk."""

from __future__ import annotations

import hmac
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from flask import Flask, Response, redirect, request, session
from flask_login import LoginManager, UserMixin, login_user, logout_user

from truetail.errors import UsageError

SLOW_DOWN_S = 0.5
"""How long a wrong password takes to be refused."""


class User(UserMixin):  # type: ignore[misc]
    """The one user there is."""

    def __init__(self, name: str) -> None:
        self.id = name


def credentials() -> tuple[str, str]:
    """Name and password from the environment. Raises UsageError when one of them is missing."""
    name, password = os.environ.get("TRUETAIL_UI_USER", ""), os.environ.get("TRUETAIL_UI_PASSWORD", "")
    if not name or not password:
        raise UsageError("a login needs the environment variables TRUETAIL_UI_USER and TRUETAIL_UI_PASSWORD, both not empty")
    return name, password


def session_secret() -> str:
    """The key that signs sessions: random, and the same in the processes of one `truetail ui`."""
    return os.environ.setdefault("TRUETAIL_UI_SECRET", secrets.token_hex(32))


def guard(app: Flask, manager: LoginManager, home: str, login_page: str) -> Callable[[], Response]:
    """Sessions and basic auth (for Prometheus) on ``app``; returns the view that takes the login form, redirecting to ``home``."""
    name, password = credentials()
    app.secret_key = session_secret()
    app.config.update(SESSION_COOKIE_SAMESITE="Lax", SESSION_COOKIE_HTTPONLY=True)

    def fits(given_name: str, given_password: str) -> bool:
        right = hmac.compare_digest(given_name.encode(), name.encode())
        return hmac.compare_digest(given_password.encode(), password.encode()) and right

    @manager.user_loader
    def _from_session(user_id: str) -> User | None:
        return User(user_id) if hmac.compare_digest(user_id.encode(), name.encode()) else None

    @manager.request_loader
    def _from_header(asked: Any) -> User | None:
        given = asked.authorization
        if given is None or given.type != "basic":
            return None
        return User(name) if fits(given.username or "", given.password or "") else None

    def submit() -> Response:
        if fits(request.form.get("username", ""), request.form.get("password", "")):
            login_user(User(name))
            return redirect(home)  # type: ignore[return-value]
        time.sleep(SLOW_DOWN_S)
        session["auth_error"] = "Wrong name or password"
        return redirect(login_page)  # type: ignore[return-value]

    return submit


def leave(login_page: str) -> Response:
    """End the session."""
    logout_user()
    return redirect(login_page)  # type: ignore[return-value]

"""redis-py with a name and a password, against a DistCache router. Usage: redis_py_users.py PORT PROTOCOL

The router knows `admin` with the password `root`, who may do everything, and `app` with `secret`, who may read and write
keys that begin with `app:`.
"""

import sys

import redis

port, protocol = int(sys.argv[1]), int(sys.argv[2])


def client(**login):
    return redis.Redis(port=port, protocol=protocol, decode_responses=True, **login)


admin = client(username="admin", password="root")
app = client(username="app", password="secret")
assert admin.acl_whoami() == "admin"
assert {"admin", "app", "default"} <= set(admin.acl_users())
assert "~app:*" in admin.acl_getuser("app")["keys"]
assert app.set("app:1", "one") and app.get("app:1") == "one"
assert admin.set("other", "two") and admin.get("other") == "two"

for refused in (lambda: app.get("other"), lambda: app.config_get("hz"), lambda: app.acl_list()):
    try:
        refused()
    except redis.exceptions.NoPermissionError as error:
        assert "no permissions" in str(error), error
        continue
    raise AssertionError("app may not do that")

pipe = app.pipeline(transaction=True)
pipe.set("app:2", 2)
pipe.get("other")
try:
    pipe.execute()
except redis.exceptions.ResponseError:
    assert app.get("app:2") is None
else:
    raise AssertionError("a transaction with a command that is not allowed was carried out")

for login in (dict(), dict(username="app", password="wrong"), dict(username="nobody", password="secret")):
    try:
        client(**login).ping()
    except redis.exceptions.AuthenticationError:
        continue
    raise AssertionError(f"{login} was let in")
assert admin.acl_log()[0]["reason"] == "auth"

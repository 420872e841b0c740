"""KServe v2, OpenAI-compatible and embeddings users against small servers that keep to the protocol, and to its faults."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import gevent
import numpy as np
import pytest

from truetail.errors import TargetNotReady, UsageError
from truetail.http.user import connection_counts, identities
from truetail.records import FAILED, OK

TENSORS = [{"name": "x", "shape": [2, 3], "datatype": "FP32"}, {"name": "s", "shape": [2], "datatype": "BYTES"}]


def request(**spec):
    return {"name": "r", "path": "/", "headers": {}, "expect": {}, **spec}


# -- KServe v2 ----------------------------------------------------------------------------------------------------------


def v2(infer):
    return {
        "/v2/models/m/ready": b"",
        "/v2/models/m": {"name": "m", "versions": ["1"], "platform": "python"},
        "/v2/models/m/infer": infer,
    }


def test_kserve_json(bench, service):
    """Inputs with name, shape, type and as many values; the model is asked for and its description kept; variants by arrival."""
    s = service(v2({"model_name": "m", "outputs": [{"name": "y", "shape": [1], "datatype": "FP32", "data": [1]}]}))
    b = bench("kserve_users", s.url, {"requests": [request(protocol={"model": "m"}, payload={"tensors": TENSORS})]})
    reports = [b.run(k=k)[0] for k in range(40)]
    assert {report.exchange.outcome for report in reports} == {OK}
    bodies = [json.loads(seen.body) for seen in s.seen if seen.path.endswith("/infer")]
    assert 5 < len({body["id"] for body in bodies}) <= 16
    for given, spec in zip(bodies[0]["inputs"], TENSORS, strict=True):
        assert given | spec == given
        assert len(given["data"]) == math.prod(spec["shape"])
    assert identities(b.environment)["r"]["platform"] == "python"
    assert connection_counts(b.environment).opened >= 1


def test_kserve_binary(bench, service):
    """The binary extension: the JSON part's length in the header, then the tensors' bytes, as an independent reader takes them apart."""
    seen = []

    def infer(r):
        length = int(r.headers["inference-header-content-length"])
        head = json.loads(r.body[:length])
        sizes = [given["parameters"]["binary_data_size"] for given in head["inputs"]]
        rest = r.body[length:]
        assert sum(sizes) == len(rest)
        seen.append(np.frombuffer(rest[: sizes[0]], "<f4").reshape(2, 3))
        output = json.dumps({"outputs": [{"name": "y", "parameters": {"binary_data_size": 8}}]}).encode()
        return 200, {"Inference-Header-Content-Length": str(len(output))}, output + bytes(8)

    s = service(v2(infer))
    spec = request(protocol={"model": "m", "binary": True, "outputs": ["y"]}, payload={"tensors": TENSORS})
    (report,) = bench("kserve_users", s.url, {"requests": [spec]}).run()
    assert report.exchange.outcome == OK
    assert ((seen[0] >= 0) & (seen[0] < 1)).all()


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        ({"error": "no"}, "wrong-content"),
        ({"outputs": 3}, "wrong-content"),
        ([], "wrong-content"),
        (b"Internal Server Error", "malformed"),
        ((200, {"Inference-Header-Content-Length": "900"}, b"{}"), "malformed"),
        ((200, {"Inference-Header-Content-Length": "14"}, b'{"outputs":[]}x'), "malformed"),
        ((503, {}, {"error": "[request id: 72] Exceeds maximum queue size"}), "shed"),
        ((400, {}, {"error": "bad shape"}), "http-4xx"),
    ],
)
def test_kserve_faults(bench, service, answer, error_class):
    """What is no inference is classified; the id in Triton's refusal does not make an error of its own each time."""
    s = service(v2(answer))
    (report,) = bench("kserve_users", s.url, {"requests": [request(protocol={"model": "m"}, payload={"tensors": TENSORS})]}).run()
    assert (report.exchange.outcome, report.exchange.error_class) == (FAILED, error_class)
    assert "72" not in str(report.exception)


def test_kserve_refuses_a_model_that_is_not_loaded(bench, service):
    """Before anything is sent, with the server's own words."""
    s = service({"/v2/models/m/ready": (400, {}, {"error": "unknown model"})})
    with pytest.raises(TargetNotReady, match=r"model m is loaded.*unknown model"):
        bench("kserve_users", s.url, {"requests": [request(protocol={"model": "m"}, payload={"tensors": TENSORS})]})
    with pytest.raises(UsageError, match=r"protocol\.model is missing"):
        bench("kserve_users", s.url, {"requests": [request()]})
    s = service(v2({}))
    with pytest.raises(UsageError, match=r"payload\.tensors"):
        bench("kserve_users", s.url, {"requests": [request(protocol={"model": "m"})]})


# -- OpenAI -------------------------------------------------------------------------------------------------------------


def chat_chunk(**delta):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def event(document):
    return b"data: " + (document if isinstance(document, bytes) else json.dumps(document).encode()) + b"\n\n"


STREAM = [
    event(chat_chunk(role="assistant", content="")),
    event(chat_chunk(content="Hel")),
    event(chat_chunk(content="")),
    event(chat_chunk(content="lo")),
    event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
]
USAGE = event({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 4}})
DONE = event(b"[DONE]")


def stream(*events, pause_s=0.0):
    def answer(_):
        def parts():
            for part in events:
                yield part
                gevent.sleep(pause_s)

        return 200, {"Content-Type": "text/event-stream; charset=utf-8"}, parts()

    return answer


def chat(payload=None, **protocol):
    return request(protocol={"model": "m", **protocol}, payload={"tokens": 12, "max_tokens": 5} if payload is None else payload)


def test_chat_stream(bench, service):
    """First token is the first text, not the role; the empty text in between counts; tokens as the server tells them."""
    s = service({"/v1/chat/completions": stream(*STREAM, USAGE, DONE, pause_s=0.03)})
    (report,) = bench("openai_users", s.url, {"requests": [chat(options={"temperature": 0})]}).run()
    x = report.exchange
    assert (x.outcome, x.tokens_in, x.tokens_out) == (OK, 11, 4)
    assert x.first_byte_ns < x.first_token_ns < x.done_ns
    gaps = report.context["inter_token_ns"]
    assert len(gaps) == 2
    assert x.itl_max_us * 1e3 == max(gaps)
    body = json.loads(s.posted[0].body)
    assert (body["model"], body["stream"], body["temperature"], body["max_tokens"]) == ("m", True, 0, 5)
    assert body["stream_options"] == {"include_usage": True}
    assert len(body["messages"][0]["content"].split()) == 12


def test_tokens_are_counted_when_the_server_does_not(bench, service):
    """Without usage the events with tokens are counted."""
    s = service({"/v1/chat/completions": stream(*STREAM, DONE)})
    (report,) = bench("openai_users", s.url, {"requests": [chat()]}).run()
    assert (report.exchange.tokens_in, report.exchange.tokens_out) == (0, 3)


def test_plain_completions_and_reasoning(bench, service):
    """choices[].text; and reasoning before the answer is a token of its own."""
    texts = [event({"choices": [{"index": 0, "text": text, "finish_reason": None}]}) for text in "abc"]
    s = service(
        {"/v1/completions": stream(*texts, DONE), "/v1/chat/completions": stream(event(chat_chunk(reasoning_content="hm")), DONE)}
    )
    spec = chat(api="completions", prompt="${token_ids}")
    (report,) = bench("openai_users", s.url, {"requests": [spec]}).run()
    assert report.exchange.tokens_out == 3
    assert len(json.loads(s.posted[0].body)["prompt"]) == 12
    (report,) = bench("openai_users", s.url, {"requests": [chat()]}).run()
    assert report.exchange.tokens_out == 1


def test_the_servers_own_times(bench, service):
    """llama.cpp tells with its last event how long prompt and tokens took: that is the inference of the account, unless it is nonsense."""

    def told(timings):
        s = service({"/v1/chat/completions": stream(*STREAM, event({"choices": [], "timings": timings}), DONE)})
        (report,) = bench("openai_users", s.url, {"requests": [chat()]}).run()
        assert report.exchange.outcome == OK
        return report.exchange.inference_us

    assert told({"prompt_ms": 1.5, "predicted_ms": 20, "cache_n": 3}) == 21_500
    for nonsense in (
        {"prompt_ms": -1, "predicted_ms": 2},
        {"prompt_ms": "1", "predicted_ms": 2},
        {"predicted_ms": 1e300},
        {},
        [1],
    ):
        assert math.isnan(told(nonsense)), nonsense


def test_answer_in_one_piece(bench, service):
    """stream: false: usage is read, no token times are made up."""
    whole = {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    s = service({"/v1/chat/completions": whole})
    (report,) = bench("openai_users", s.url, {"requests": [chat(stream=False)]}).run()
    x = report.exchange
    assert (x.outcome, x.tokens_in, x.tokens_out, x.first_token_ns) == (OK, 3, 2, -1)


@pytest.mark.parametrize(
    ("answer", "error_class"),
    [
        (stream(*STREAM), "truncated"),
        (stream(*STREAM[:2], b"data: {oops\n\n", DONE), "malformed"),
        (stream(*STREAM[:2], event([1]), DONE), "malformed"),
        (stream(*STREAM[:2], event({"choices": [7]}), DONE), "malformed"),
        (stream(*STREAM[:2], event({"error": {"message": "out of memory"}}), DONE), "wrong-content"),
        (stream(*STREAM, DONE, event(chat_chunk(content="x"))), "malformed"),
        (stream(DONE), "wrong-content"),
        (stream(b"data: \xff\xfe\n\n", DONE), "malformed"),
        ({"choices": []}, "wrong-content"),
        ((404, {}, {"error": {"message": "unknown model"}}), "http-4xx"),
        ((429, {}, b""), "shed"),
    ],
)
def test_chat_faults(bench, service, answer, error_class):
    """Streams that end early, break, report an error, go on after their end or hold nothing; and plain refusals."""
    s = service({"/v1/chat/completions": answer})
    (report,) = bench("openai_users", s.url, {"requests": [chat()]}).run()
    assert (report.exchange.outcome, report.exchange.error_class) == (FAILED, error_class)


def test_interleaved_choices(bench, service):
    """n = 2 in one stream: gaps are within a choice."""

    def of(index):
        return event({"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": None}]})

    s = service({"/v1/chat/completions": stream(of(0), of(1), of(0), of(1), DONE, pause_s=0.03)})
    (report,) = bench("openai_users", s.url, {"requests": [chat(options={"n": 2})]}).run()
    assert report.exchange.tokens_out == 4
    assert len(report.context["inter_token_ns"]) == 2, "three between the tokens of the stream, two within choices"


def test_conversation(bench, service):
    """Three turns: each sends all that was said, waits the think time, and reports; a failed turn ends it."""
    s = service({"/v1/chat/completions": stream(*STREAM, USAGE, DONE)})
    b = bench("openai_users", s.url, {"requests": [chat(turns=3, think="50ms")]})
    reports = b.run(k=4)
    assert len(reports) == 3
    starts = [report.exchange.sent_ns for report in reports]
    assert all(later - earlier > 0.05e9 for earlier, later in pairwise(starts))
    roles = [[message["role"] for message in json.loads(seen.body)["messages"]] for seen in s.posted]
    assert roles == [["user"], ["user", "assistant", "user"], ["user", "assistant", "user", "assistant", "user"]]
    last = json.loads(s.posted[2].body)["messages"]
    assert last[1]["content"] == "Hello"
    assert len({message["content"] for message in last if message["role"] == "user"}) == 3
    first = [seen.body for seen in s.posted]
    s.seen.clear()
    b.run(k=4)
    assert [seen.body for seen in s.seen] == first, "the same conversation for the same arrival"
    s.routes["/v1/chat/completions"] = (500, {}, b"")
    assert len(b.run(k=5)) == 1


def models(*names, **more):
    return {"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]}


@pytest.mark.parametrize("users", ["openai_users", "embeddings_users"])
def test_a_model_that_is_not_listed_is_refused(bench, service, users):
    """Before anything is sent, naming the models that are loaded; ``check_model: false`` sends to it all the same."""
    s = service({"/v1/models": models("tiny", "large"), "/v1/chat/completions": stream(*STREAM, DONE)})
    with pytest.raises(TargetNotReady, match=r"model m is not loaded: GET /v1/models lists tiny, large") as refused:
        bench(users, s.url, {"requests": [chat()]})
    assert "check_model" in str(refused.value)
    assert not s.posted
    bench(users, s.url, {"requests": [chat(check_model=False)]})
    with pytest.raises(UsageError, match=r"protocol\.check_model: found 'no'"):
        bench(users, s.url, {"requests": [chat(check_model="no")]})


def test_a_listed_model_is_described(bench, service):
    """By its name or an alias; plain facts of it go into the manifest, cut short, and the list is asked for beside the endpoint."""
    meta = {"n_ctx": 1024, "size": "SIZE", "deep": {"x": 1}, "note": "x" * 1000}
    listed = models("m") | {"data": [{"id": "other", "aliases": ["big"], "meta": meta}, {"id": "m", "meta": meta}]}
    s = service({"/base/v1/models": json.dumps(listed).replace('"SIZE"', "1e400").encode()})
    s.routes["/base/openai/models"] = models("m", aliases=[])
    requests = [
        chat(),
        {**chat(model="big"), "name": "by alias"},
        {**chat(), "name": "elsewhere", "path": "/openai/chat/completions"},
    ]
    told = identities(bench("openai_users", f"{s.url}/base", {"requests": requests}).environment)
    assert set(told) == {"r", "by alias", "elsewhere"}
    assert (told["r"]["id"], told["by alias"]["id"], told["r"]["meta.n_ctx"]) == ("m", "other", 1024)
    assert "meta.deep" not in told["r"]
    assert "meta.size" not in told["r"], "an infinity has no place in strict JSON"
    assert len(told["r"]["meta.note"]) == 300


@pytest.mark.parametrize("answer", [(404, {}, b""), (405, {}, b""), b"<html>", {"models": []}])
def test_a_server_without_a_list_is_not_asked_twice(bench, service, answer):
    """Nothing can be checked then, and the run goes on."""
    s = service({"/v1/models": answer})
    assert identities(bench("openai_users", s.url, {"requests": [chat()]}).environment) == {}
    assert len(s.seen) == 1


def test_the_list_is_waited_for(bench, service):
    """A server that is still loading (503, or a list without any model) is asked again until the deadline, then told with its last words."""
    answers = iter([(503, {}, {"error": {"message": "Loading model"}}), models(), models("m")])
    s = service({"/v1/models": lambda _: next(answers)})
    bench("openai_users", s.url, {"requests": [chat()]})
    assert next(answers, None) is None
    s.routes["/v1/models"] = (503, {}, {"error": {"message": "Loading model"}})
    soon = {"target": {"ready": {"deadline_s": 0.4}}}
    with pytest.raises(TargetNotReady, match=r"model m: GET /v1/models did not list it within 0\.4 s.*503.*Loading model"):
        bench("openai_users", s.url, {"requests": [chat()], **soon})
    s.routes["/v1/models"] = (401, {}, {"error": "no key"})
    with pytest.raises(TargetNotReady, match=r"401.*no key"):
        bench("openai_users", s.url, {"requests": [chat()]})


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (request(protocol={"api": "talk", "model": "m"}), r"protocol\.api"),
        (request(protocol={}), r"protocol\.model"),
        (chat(turns=0), r"protocol\.turns"),
        (chat(turns=2, api="completions"), r"protocol\.turns"),
        (chat(turns=2, payload={"file": "x"}), r"payload\.tokens"),
        (chat(options=3), r"protocol\.options"),
        (chat(payload={"file": "/nowhere/p.jsonl"}), r"/nowhere/p\.jsonl: cannot be read"),
    ],
)
def test_wrong_chat_settings(bench, spec, fault):
    """Found before anything is sent."""
    with pytest.raises(UsageError, match=fault):
        bench("openai_users", "http://127.0.0.1:9", {"requests": [spec]})


def test_prompts_from_a_pool(bench, service, tmp_path):
    """${line.prompt} of a JSONL file."""
    (tmp_path / "p.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n', encoding="utf-8")
    s = service({"/v1/chat/completions": stream(*STREAM, DONE)})
    b = bench("openai_users", s.url, {"requests": [chat(payload={"file": str(tmp_path / "p.jsonl"), "pick": "cycle"})]})
    for k in range(3):
        b.run(k=k)
    assert [json.loads(x.body)["messages"][0]["content"] for x in s.posted] == ["one", "two", "one"]


# -- embeddings ---------------------------------------------------------------------------------------------------------


def test_embeddings(bench, service):
    """As many vectors as texts, the server's tokens; texts of one request differ."""

    def embed(r):
        texts = json.loads(r.body)["input"]
        data = [{"index": i, "embedding": [0.5, 0.25]} for i in range(len(texts))]
        return {"data": data, "usage": {"prompt_tokens": sum(len(text.split()) for text in texts)}}

    s = service({"/v1/embeddings": embed})
    spec = request(protocol={"model": "m"}, payload={"tokens": 9, "items": 4})
    (report,) = bench("embeddings_users", s.url, {"requests": [spec]}).run()
    assert (report.exchange.outcome, report.exchange.tokens_in) == (OK, 36)
    assert len(set(json.loads(s.posted[0].body)["input"])) == 4


@pytest.mark.parametrize(
    "answer",
    [{"data": []}, {"data": [{"embedding": []}]}, {"data": [{"embedding": [1]}, {"embedding": [1, 2]}]}, {"data": [1]}, [], {}],
)
def test_wrong_embeddings(bench, service, answer):
    """Another number, another length, no vectors: wrong-content."""
    s = service({"/v1/embeddings": answer})
    count = 2 if isinstance(answer, dict) and len(answer.get("data", [])) == 2 else 1
    spec = request(protocol={"model": "m"}, payload={"tokens": 3, "items": count})
    (report,) = bench("embeddings_users", s.url, {"requests": [spec]}).run()
    assert report.exchange.error_class == "wrong-content"


def test_replayed_tokens_reach_the_model(bench, service, tmp_path):
    """A trace's prompt and output tokens are the prompt's words and max_tokens, without a word of payload in the scenario."""
    trace = tmp_path / "t.csv"
    trace.write_text("time,ContextTokens,GeneratedTokens\n0,7,3\n1,40,2\n")
    s = service({"/v1/chat/completions": stream(*STREAM, USAGE, DONE), "/v1/embeddings": {"data": [{"embedding": [1.0]}]}})
    arrivals = {"trace": {"file": str(trace)}}
    b = bench("openai_users", s.url, {"requests": [request(protocol={"model": "m"})], "arrivals": arrivals})
    rows = [{"prompt_tokens": 7, "output_tokens": 3}, {"prompt_tokens": 40, "output_tokens": 2}]
    for k, row in enumerate(rows):
        b.run(k=k, row=row)
    bodies = [json.loads(seen.body) for seen in s.posted]
    assert [len(body["messages"][0]["content"].split()) for body in bodies] == [7, 40]
    assert [body["max_tokens"] for body in bodies] == [3, 2]
    e = bench("embeddings_users", s.url, {"requests": [request(protocol={"model": "m"})], "arrivals": arrivals})
    (report,) = e.run(row=rows[1])
    assert report.exchange.outcome == OK
    assert len(json.loads(s.posted[-1].body)["input"][0].split()) == 40

"""Public traces, read as they are published."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from headway.simulator.workload.arrivals import AtOnce, ClosedLoop, Renewal
from headway.simulator.workload.spec import from_spec, to_spec
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.traces import sharegpt, text
from headway.simulator.workload.traces.open import open_trace
from headway.simulator.workload.traces.sharegpt import read_share_gpt
from headway.simulator.workload.traces.trace import Window
from headway.simulator.workload.waits import FixedWait
from workload.strategies import all_requests

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:00.0000000,900,200
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2024-05-12 00:00:00.001163+00:00,2162,5\r
2024-05-12 00:00:00.001163+00:00,0,6\r
2024-05-12 00:00:00+00:00,2399,6\r
"""
BURST_GPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,"API log"
118.5,GPT-4,417,276,693,"Conversation log"
"""
BURST_GPT_3 = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log
19440161.0,d5983bf9,2,ChatGPT,36,29,65,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1200, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 3000, "input_length": 1100, "output_length": 0, "hash_ids": [0, 1, 3]}
{"timestamp": 3000.5, "input_length": 28, "output_length": 9, "hash_ids": [4]}
"""
SHARE_GPT = [
    {
        "id": "a",
        "conversations": [
            {"from": "system", "value": "abcd"},
            {"from": "human", "value": "what is é?"},
            {"from": "gpt", "value": "a letter"},
            {"from": "human", "value": "and then"},
            {"from": "human", "value": "some"},
            {"from": "gpt", "value": "x" * 9},
            {"from": "human", "value": "unanswered"},
        ],
    },
    {"id": "b", "conversations": [{"from": "gpt", "value": "answers nobody"}]},
    {"id": "c", "conversations": []},
    {"conversations": [{"from": "user", "value": "q"}, {"from": "assistant", "value": "a"}]},
]


@pytest.fixture
def save(tmp_path: Path):
    def save(content: str, name: str = "trace") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode())
        return path

    return save


def columns(workload) -> list[tuple[int, int, int]]:
    return [
        (r.arrival_ns, r.num_prompt_tokens, r.output.num_tokens) for r in all_requests(workload)
    ]


def test_azure_2023(save) -> None:
    workload = open_trace(save(AZURE_2023))
    assert workload.format == "azure"
    assert workload.notes == ()
    assert columns(workload) == [
        (0, 374, 44),
        (4_314_579_000, 396, 109),
        (13_319_410_000, 900, 200),
    ]


def test_azure_2024_sorted_and_without_failures(save) -> None:
    workload = open_trace(save(AZURE_2024))
    assert columns(workload) == [(0, 2399, 6), (1_163_000, 2162, 5)]
    assert workload.notes == (
        "1 of 3 rows have no prompt or no output and are left out",
        "the rows were not in order of arrival and have been sorted",
    )


def test_azure_times_in_other_zones(save) -> None:
    text = AZURE_2024.replace("00:00:00+00:00", "02:00:00+02:00")
    assert columns(open_trace(save(text))) == columns(open_trace(save(AZURE_2024, "same")))


def test_burst_gpt(save) -> None:
    workload = open_trace(save(BURST_GPT))
    assert columns(workload) == [
        (0, 472, 18),
        (40_000_000_000, 1087, 230),
        (113_500_000_000, 417, 276),
    ]
    assert workload.notes == ("1 of 4 rows have no prompt or no output and are left out",)
    assert columns(open_trace(save(BURST_GPT_3)))[1] == (51_000_000_000, 36, 29)


def test_mooncake(save) -> None:
    workload = open_trace(save(MOONCAKE))
    first, second, third = all_requests(workload)
    assert [s.num_tokens for s in first.prompt] == [512, 512, 176]
    assert first.prompt[:2] == second.prompt[:2]
    assert first.prompt[2].name != second.prompt[2].name
    assert (second.output.num_tokens, second.arrival_ns) == (1, 3_000_000_000)
    assert (third.num_prompt_tokens, third.arrival_ns) == (28, 3_000_500_000)
    assert "counts as 1" in workload.notes[0]


def test_gzip_and_windows(save, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(BURST_GPT.encode()))
    assert columns(open_trace(path, window=Window(first=2, rate=1))) == [
        (0, 472, 18),
        (1_000_000_000, 1087, 230),
    ]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_compressed_file_is_read_whole_or_not_at_all(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"trace{suffix}"
    text.write_lines(path, MOONCAKE.encode().splitlines())
    whole = path.read_bytes()
    requests = all_requests(open_trace(path))
    assert len(requests) == 3
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"trace{suffix}: is cut off or damaged$"):
            all_requests(open_trace(path))
    told = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            assert all_requests(open_trace(path)) == requests  # of some bits nothing depends
        except ValueError as error:
            told.append(str(error))
    assert len(told) > len(whole) * 0.9
    assert not [sentence for sentence in told if "is empty" in sentence]


def test_specs_of_traces(save) -> None:
    path = save(MOONCAKE)
    workload = from_spec({"trace": str(path), "first": 2, "time_scale": 2})
    assert [r.arrival_ns for r in all_requests(workload)] == [0, 6_000_000_000]
    assert from_spec(to_spec(workload)) == workload
    with pytest.raises(ValueError, match=r"^prompt_tokens: there is no such field"):
        from_spec({"trace": str(path), "prompt_tokens": 5})


class TestShareGpt:
    def test_conversations_become_sessions(self, save) -> None:
        workload = open_trace(save(json.dumps(SHARE_GPT)), think=FixedWait(2))
        assert isinstance(workload, Synthetic)
        assert workload.arrivals == AtOnce()
        first, second, third = all_requests(workload)
        assert [s.num_tokens for s in first.prompt] == [1 + 3]
        assert first.output.num_tokens == 2
        assert [s.num_tokens for s in second.prompt] == [4, 2, 2 + 1]
        assert second.arrival_ns == 2_000_000_000
        assert second.output.num_tokens == 3
        assert (third.num_prompt_tokens, third.output.num_tokens) == (1, 1)

    def test_says_how_tokens_are_counted_and_what_is_left_out(self, save) -> None:
        path = save(json.dumps(SHARE_GPT))
        source = read_share_gpt(path).source
        assert "tokens are characters / 4; 2 conversations" in source
        counted = read_share_gpt(path, lambda text: len(text.split()), "words")
        assert "tokens are words" in counted.source
        assert counted.prompts.tolist() == [1 + 3, 2 + 1, 1]

    def test_arrivals_are_given(self, save) -> None:
        path = str(save(json.dumps(SHARE_GPT)))
        assert from_spec({"trace": path, "rate": 3}).arrivals == Renewal(3)
        closed = from_spec({"trace": path, "arrivals": "closed:1", "first": 2, "seed": 4})
        assert closed.arrivals == ClosedLoop(1)
        assert len(all_requests(closed)) == 2
        with pytest.raises(ValueError, match="rate: arrivals are given too"):
            from_spec({"trace": path, "rate": 3, "arrivals": "at-once"})
        with pytest.raises(ValueError, match="no times that start_s"):
            from_spec({"trace": path, "start_s": 3})

    @pytest.mark.parametrize("indent", [None, 2])
    def test_read_in_pieces(self, save, monkeypatch, indent) -> None:
        whole = read_share_gpt(save(json.dumps(SHARE_GPT, ensure_ascii=False, indent=indent)))
        monkeypatch.setattr(text, "CHUNK", 3)
        pieces = read_share_gpt(save(json.dumps(SHARE_GPT, ensure_ascii=False, indent=indent)))
        assert pieces.prompts.tolist() == whole.prompts.tolist()
        assert pieces.turns.tolist() == [2, 1]

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("[", ":1: Expecting value"),
            ('[\n{"conversations": []},\n', ":3: Expecting value"),
            ('[\n{"conversations": []}', ":2: is cut off"),
            ('[{"conversations": []}\n{}]', ":2: , or ] is needed, not {"),
            ('[{"conversations": []}]\n x', ":2: something follows"),
            ('[\n\n{"conversations": [}]', ":3: "),
            ('[{"conversations": []}, 5]', ":1: conversation 2: is not an object"),
            ('[{"conversations": [5]}]', ":1: conversation 1: a message is not"),
            (
                '[\n{"conversations": [{"from": "ghost", "value": "x"}]}]',
                ":2: conversation 1: a message from 'ghost'",
            ),
            (
                '[{"conversations": []},\n{"conversations": [{"from": ["gpt"], "value": "x"}]}]',
                r":2: conversation 2: a message from \['gpt'\] has no text",
            ),
            (
                '[{"conversations": [{"from": {"name": "gpt"}, "value": "x"}]}]',
                ":1: conversation 1: a message from {'name': 'gpt'} has no text",
            ),
            (
                '[{"conversations": []},\n{"id": ' + "9" * 5000 + "}]",
                ":2: conversation 2: .*digits",
            ),
            ("[" * 100_000, ":1: conversation 1: maximum recursion depth"),
            ("[]", ": no conversation has"),
            ("[\udcff]", ""),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, content, says) -> None:
        path = tmp_path / "trace"
        path.write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(ValueError, match=f"trace{says}"):
            open_trace(path)

    def test_no_conversation_is_endless(self, save, monkeypatch) -> None:
        monkeypatch.setattr(sharegpt, "_LONGEST", 100)
        monkeypatch.setattr(text, "CHUNK", 10)
        with pytest.raises(ValueError, match=":1: Unterminated string"):
            read_share_gpt(save('["' + "x" * 10_000 + '"]'))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", ": is empty"),
        ("a,b,c\n1,2,3\n", ":1: neither JSON lines"),
        ("ContextTokens,GeneratedTokens\n", ":1: azure traces have a column 'TIMESTAMP'"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ": has no requests"),
        (AZURE_2023 + "2023-11-16 18:16:01,5\n", ":5: 2 cells for 3 columns"),
        (AZURE_2023 + "2023-11-16 18:16:01,5,x\n", ":5: 'x' is not a number of tokens"),
        (AZURE_2023 + "2023-11-16 18:16:01,-5,1\n", ":5: '-5' is not a number of tokens"),
        (AZURE_2023 + "2023-11-16 18:16:01,9999999999,1\n", ":5: 9999999999 is too large"),
        (AZURE_2023 + "yesterday,5,1\n", ":5: 'yesterday' is not a time like"),
        (AZURE_2023 + "2023-13-16 18:16:01,5,1\n", ":5: "),
        (AZURE_2023 + "2023-11-16 18:17:99,5,1\n", ":5: '2023-11-16 18:17:99' is not a time like"),
        (AZURE_2023 + "0001-01-01 00:00:00,5,1\n", ":5: '0001-01-01 00:00:00' is not .* 1970"),
        (AZURE_2023 + "0001-01-01 00:00:00+14:00,5,1\n", ":5: .* is not a time between 1970"),
        (AZURE_2023 + "9999-12-31 23:59:59,5,1\n", ":5: '9999-12-31 23:59:59' is not .* 2116"),
        (AZURE_2023 + "9999-12-31 23:59:59-14:00,5,1\n", ":5: .* is not a time between 1970"),
        (AZURE_2023.replace("TIM", "TIMESTAMP,TIM"), ":1: the column 'TIMESTAMP' is there twice"),
        (BURST_GPT + "soon,GPT-4,1,1,2,API log\n", ":6: 'soon' is not a time in seconds"),
        (BURST_GPT + "1e999999,GPT-4,1,1,2,API log\n", ":6: '1e999999' is not a time in seconds"),
        (BURST_GPT + "9e9,GPT-4,1,1,2,API log\n", ":6: '9e9' is not a time in seconds"),
        (BURST_GPT + "NaN,GPT-4,1,1,2,API log\n", ":6: 'NaN' is not a time in seconds"),
        (MOONCAKE + MOONCAKE, ":4: timestamp 0 is before the 3000.5 above it"),
        (MOONCAKE.replace("[4]", "[4, 5]"), ":3: more hash_ids than 28 tokens"),
        (MOONCAKE.replace("28", "0"), r":3: .*at `\$.input_length`"),
        (MOONCAKE.replace("output_length", "outputs"), ":1: Object contains unknown field"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(save, content, says) -> None:
    with pytest.raises(ValueError, match=f"trace{says}"):
        all_requests(open_trace(save(content)))


@pytest.mark.parametrize("window", [{"stop_s": 1e300}, {"start_s": 2e9}])
def test_windows_end_where_times_do(window) -> None:
    with pytest.raises(ValueError, match="at most 1e9 seconds"):
        Window(**window)


def test_time_is_not_stretched_beyond_what_can_be_counted(save) -> None:
    path = save(MOONCAKE)
    late = all_requests(open_trace(path, window=Window(time_scale=1e9)))[-1]
    assert late.arrival_ns == 3_000_500_000 * 10**9
    path = save(MOONCAKE.replace("3000", "30000"))
    with pytest.raises(ValueError, match=r"stretched by 1e.09 puts arrivals more than 146 years"):
        all_requests(open_trace(path, window=Window(time_scale=1e9)))


def test_formats_and_options_that_do_not_fit(save) -> None:
    with pytest.raises(ValueError, match=r"^format: 'csv' is not one of auto, headway"):
        open_trace(save(AZURE_2023), "csv")
    with pytest.raises(ValueError, match=r"^arrivals: .*has its own times"):
        open_trace(save(AZURE_2023), arrivals=AtOnce())
    with pytest.raises(ValueError, match=r"^think_s: .*has its own times"):
        open_trace(save(AZURE_2023), think=FixedWait(1))
    with pytest.raises(ValueError, match=r"^seed: .* has its own times and lengths"):
        open_trace(save(AZURE_2023), seed=1)

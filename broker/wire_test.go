package broker

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// codec is a message's encoder and decoder, for the tests that hold for all messages.
type codec struct {
	name   string
	make   func(*rapid.T) any
	encode func(any) ([]byte, error)
	decode func([]byte) (any, error)
}

func codecOf[T any](name string, encode func(*T) ([]byte, error), decode func([]byte) (*T, error)) codec {
	return codec{
		name:   name,
		make:   func(t *rapid.T) any { v := rapid.Make[T]().Draw(t, name); return &v },
		encode: func(v any) ([]byte, error) { return encode(v.(*T)) },
		decode: func(b []byte) (any, error) {
			v, err := decode(b)
			if err != nil {
				return nil, err
			}
			return v, nil
		},
	}
}

var codecs = []codec{
	codecOf("chunk", EncodeChunk, DecodeChunk),
	codecOf("reports", EncodeReports, DecodeReports),
	codecOf("stage", EncodeStage, DecodeStage),
	codecOf("result", EncodeResult, DecodeResult),
	codecOf("beat", EncodeBeat, DecodeBeat),
	codecOf("registration", EncodeRegistration, DecodeRegistration),
	codecOf("question", EncodeAskRequest, DecodeAskRequest),
	codecOf("answer", EncodeAskReply, DecodeAskReply),
	codecOf("order", EncodeControl, func(b []byte) (*Control, error) { c, err := DecodeControl(b); return &c, err }),
	codecOf("log", EncodeLog, DecodeLog),
	codecOf("events", EncodeEvents, DecodeEvents),
	codecOf("interest", EncodeInterest, DecodeInterest),
	codecOf("directed", func(v *DirectedReply) ([]byte, error) { return EncodeDirectedReply(*v), nil },
		func(b []byte) (*DirectedReply, error) { v, err := DecodeDirectedReply(b); return &v, err }),
}

// plain makes empty lists and maps nil, as they arrive; []byte keeps the difference.
func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		plain(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			plain(v.Field(i))
		}
	case reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		if v.Len() == 0 {
			v.SetZero()
			return
		}
		for i := range v.Len() {
			plain(v.Index(i))
		}
	}
}

func TestMessagesComeBackAsTheyWent(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				want := c.make(t)
				b, err := c.encode(want)
				require.NoError(t, err)
				got, err := c.decode(b)
				require.NoError(t, err)
				plain(reflect.ValueOf(want))
				require.Equal(t, want, got)

				// A newer writer adds fields at the end: they are skipped.
				got, err = c.decode(append(b[:len(b):len(b)], 1, 2, 3, 255))
				require.NoError(t, err)
				require.Equal(t, want, got)

				// What is cut anywhere is damaged, and says so.
				for n := range len(b) {
					_, err := c.decode(b[:n:n])
					require.ErrorIs(t, err, ErrUndecodable)
				}
			})
		})
	}
}

func TestForeignVersionsAndKindsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		for _, b := range [][]byte{nil, {}, {wireVersion}, {0, 1, 0, 0}, {wireVersion + 1, 1, 0, 0}, {wireVersion, 200, 0}} {
			_, err := c.decode(b)
			require.ErrorIs(t, err, ErrUndecodable, "%s %v", c.name, b)
		}
	}
	beat, err := EncodeBeat(&Beat{App: "a"})
	require.NoError(t, err)
	_, err = DecodeChunk(beat)
	require.ErrorIs(t, err, ErrUndecodable)
}

func TestRecordsOfANewerWriterAreRead(t *testing.T) {
	t.Parallel()
	want := &ReportBatch{App: "a", Worker: "w", Incarnation: 3, Reports: []Report{
		{ChunkKey: ChunkKey{1, 2, 3, 4}, Kind: ReportFailed, Numbers: []int64{5}, Error: TaskError{Kind: ErrorFailed, Message: strings.Repeat("x", 300)}},
		{ChunkKey: ChunkKey{5, 6, 7, 8}, Kind: ReportSucceeded, LogFrom: 1, LogTo: 2},
		{ChunkKey: ChunkKey{5, 6, 7, 9}, Kind: ReportSucceeded, Context: []byte(`{"k":1}`)},
	}}
	w := startWriter(nil, wireReports)
	w.strings(want.App, want.Worker)
	w.uvarint(want.Incarnation)
	w.list("reports", len(want.Reports), MaxBatchReports)
	for i := range want.Reports {
		at := w.open()
		w.report(&want.Reports[i])
		w.string("a field of tomorrow")
		w.close(at)
	}
	got, err := DecodeReports(w.b)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestConsecutiveNumbersCostAFewBytes(t *testing.T) {
	t.Parallel()
	numbers := make([]int64, 500)
	for i := range numbers {
		numbers[i] = 1_000_000 + int64(i)
	}
	size := func(ns []int64) int {
		b, err := EncodeReports(&ReportBatch{App: "a", Worker: "w", Reports: []Report{{Numbers: ns}}})
		require.NoError(t, err)
		return len(b)
	}
	require.LessOrEqual(t, size(numbers)-size(nil), 8)
}

func TestItemsAreNotCopiedAndCannotGrowIntoEachOther(t *testing.T) {
	t.Parallel()
	b, err := EncodeChunk(&Chunk{App: "a", Tasks: []Task{{Number: 1, Item: []byte("one")}, {Number: 2, Item: []byte("two")}}})
	require.NoError(t, err)
	c, err := DecodeChunk(b)
	require.NoError(t, err)
	_ = append(c.Tasks[0].Item, "garbage"...)
	require.Equal(t, "two", string(c.Tasks[1].Item))
	c.Tasks[0].Item[0] = 'X'
	require.Contains(t, string(b), "Xne")
}

func TestWhatIsOverTheBoundsIsNotEncoded(t *testing.T) {
	t.Parallel()
	_, err := EncodeChunk(&Chunk{Tasks: make([]Task, MaxChunkTasks+1)})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = EncodeStage(&StageBatch{Items: make([][]byte, MaxStageItems+1)})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = EncodeReports(&ReportBatch{Reports: make([]Report, MaxBatchReports+1)})
	require.ErrorIs(t, err, ErrTooLarge)
	many := ReportBatch{Reports: make([]Report, maxAllNumbers/MaxNumbers+1)}
	for i := range many.Reports {
		many.Reports[i].Numbers = make([]int64, MaxNumbers)
	}
	_, err = EncodeReports(&many)
	require.ErrorIs(t, err, ErrTooLarge)
}

// A few bytes may not claim much memory: a run of 2^16 numbers fits in five.
func TestHostileCountsAllocateLittle(t *testing.T) {
	w := startWriter(nil, wireReports)
	w.strings("a", "w")
	w.uvarint(1)
	run := make([]int64, MaxNumbers)
	for i := range run {
		run[i] = int64(i)
	}
	w.list("reports", MaxBatchReports, MaxBatchReports)
	for range MaxBatchReports {
		w.numbers = 0
		at := w.open()
		w.report(&Report{Numbers: run})
		w.close(at)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := DecodeReports(w.b)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, ErrUndecodable)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
}

func FuzzDecode(f *testing.F) {
	for _, m := range []struct {
		b   []byte
		err error
	}{
		pair(EncodeChunk(sampleChunk(5))), pair(EncodeReports(sampleReports(3))),
		pair(EncodeStage(&StageBatch{Instance: 1, Items: [][]byte{[]byte("x"), nil}})),
		pair(EncodeResult(&ResultBatch{Numbers: []int64{1, 2, 3}, Values: [][]byte{{1}, {2}, {3}}})),
		pair(EncodeBeat(&Beat{App: "a", Labels: map[string]string{"k": "v"}, Pools: []string{"any"}, Processors: []ProcessorInfo{{Name: "p"}}, Held: []ChunkKey{{1, 2, 3, 4}}})),
		pair(EncodeAskReply(&AskReply{Done: []int64{1}, Results: []Range{{1, 2}}, Shares: []Share{{Index: 1}}, Errors: []NumberedError{{1, "e"}}})),
		pair(EncodeAskRequest(&AskRequest{App: "a"})), pair(EncodeRegistration(&Registration{Error: "no"})),
		pair(EncodeControl(&Control{Kind: ControlStop})), pair(EncodeLog(&LogBatch{Lines: []LogLine{{At: 1, Text: "t"}}})),
		pair(EncodeEvents(&EventBatch{Source: 7, Seq: 1, Lost: true, Events: []Event{{Kind: EventNode, Node: "n", Error: "e"}}})),
		pair(EncodeInterest(&Interest{Source: 7, App: 1})),
	} {
		if m.err != nil {
			f.Fatal(m.err)
		}
		f.Add(m.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range codecs {
			v, err := c.decode(b)
			if err != nil {
				if !errors.Is(err, ErrUndecodable) {
					t.Fatalf("%s: %v", c.name, err)
				}
				continue
			}
			again, err := c.encode(v)
			if err != nil {
				t.Fatalf("%s: decoded but not encoded: %v", c.name, err)
			}
			w, err := c.decode(again)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			// Compared as encoded, where NaN equals itself.
			twice, err := c.encode(w)
			if err != nil || string(twice) != string(again) {
				t.Fatalf("%s: %#v became %#v (%v)", c.name, v, w, err)
			}
		}
	})
}

type encoded = struct {
	b   []byte
	err error
}

func pair(b []byte, err error) encoded { return encoded{b, err} }

func sampleChunk(n int) *Chunk {
	c := &Chunk{
		ChunkKey: ChunkKey{Instance: 1 << 50, Attempt: 1, Run: 1, Chunk: 77}, App: "shop", Shard: 9, Epoch: 4,
		Phase: PhaseSub, Mode: "map_reduce", Processor: "square", Job: "squares", JobID: 1 << 49, Name: "items",
		Params: []byte(`{"a":1}`), ScheduledAt: 1_800_000_000_000, CreatedAt: 1_800_000_000_001, TaskTimeout: time.Minute,
	}
	for i := range n {
		c.Tasks = append(c.Tasks, Task{Number: int64(1000 + i), Attempt: 1, Item: fmt.Appendf(nil, "%010d", i)})
	}
	return c
}

func sampleReports(n int) *ReportBatch {
	b := &ReportBatch{App: "shop", Worker: "worker-1", Incarnation: 1 << 60}
	for i := range n {
		b.Reports = append(b.Reports, Report{
			ChunkKey: ChunkKey{Instance: 1<<50 + int64(i), Attempt: 1, Chunk: 1}, Kind: ReportSucceeded, Phase: PhaseRoot,
			Numbers: []int64{0}, TaskAttempt: 1, Duration: 1234 * time.Microsecond, Result: []byte("null"), Emitted: -1,
		})
	}
	return b
}

func BenchmarkChunk512(b *testing.B) {
	c := sampleChunk(512)
	raw, err := EncodeChunk(c)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, len(raw))
		for b.Loop() {
			if _, err := appendChunk(buf, c); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(raw)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeChunk(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkReports64(b *testing.B) {
	r := sampleReports(64)
	raw, err := EncodeReports(r)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, len(raw))
		for b.Loop() {
			if _, err := appendReports(buf, r); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(raw)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeReports(raw); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package track_test

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSimulator runs worlds of faults, each from a seed. FANJET_SIM_SEED replays one,
// FANJET_SIM_SECONDS runs fresh seeds for so long, FANJET_SIM_FROM=N the sixty from N on. Seeds that failed once are kept in
// testdata/seeds.txt.
func TestSimulator(t *testing.T) {
	if text := os.Getenv("FANJET_SIM_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		steps, w := simulate(t, seed)
		if testing.Verbose() {
			t.Logf("%d steps, %d faults, plan %+v\n%s", steps, w.harmed, w.faults, strings.Join(w.trace, "\n"))
		}
		return
	}
	t.Parallel()
	seeds := keptSeeds(t)
	for s := range uint64(25) {
		seeds = append(seeds, s)
	}
	steps := int64(0)
	for _, seed := range seeds {
		n, _ := simulate(t, seed)
		steps += n
	}
	ran := len(seeds)
	if text := os.Getenv("FANJET_SIM_SECONDS"); text != "" {
		seconds, err := strconv.Atoi(text)
		require.NoError(t, err)
		seed := uint64(time.Now().UnixNano())
		t.Logf("fresh seeds from %d", seed)
		for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); seed++ {
			n, _ := simulate(t, seed)
			steps += n
			ran++
		}
	}
	if text := os.Getenv("FANJET_SIM_FROM"); text != "" {
		from, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
		t.Logf("the sixty seeds from %d", from)
		for seed := from; seed < from+60; seed++ {
			n, _ := simulate(t, seed)
			steps += n
			ran++
		}
	}
	t.Logf("%d seeds, %d steps", ran, steps)
}

func simulate(t *testing.T, seed uint64) (int64, *world) {
	t.Helper()
	w, err := newWorld(seed)
	require.NoError(t, err)
	defer w.close()
	err = w.run()
	if err != nil {
		last := w.trace[max(len(w.trace)-60, 0):]
		if testing.Verbose() {
			last = w.trace
		}
		t.Errorf("seed %d, step %d: %v\nreplay: FANJET_SIM_SEED=%d go test -run TestSimulator -v ./engine/internal/track\nplan %+v\n%s",
			seed, w.steps, err, seed, w.faults, strings.Join(last, "\n"))
	}
	return w.steps, w
}

func keptSeeds(t *testing.T) (seeds []uint64) {
	f, err := os.Open("testdata/seeds.txt")
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		text, _, _ := strings.Cut(sc.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "testdata/seeds.txt: %q", text)
		seeds = append(seeds, seed)
	}
	return seeds
}

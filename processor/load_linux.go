package processor

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"
)

// loadGauge reads /proc; what cannot be read is unknown.
type loadGauge struct {
	idle, total uint64 // of /proc/stat at the last reading
	dir         string
}

func newLoadGauge() *loadGauge {
	g := &loadGauge{dir: "."}
	g.idle, g.total = cpuTicks()
	return g
}

func (g *loadGauge) read() load {
	l := load{cpu: -1, memory: availableMemory(), disk: -1}
	idle, total := cpuTicks()
	if total > g.total && idle >= g.idle {
		l.cpu = float64(runtime.NumCPU()) * float64(idle-g.idle) / float64(total-g.total)
	}
	g.idle, g.total = idle, total
	var fs syscall.Statfs_t
	if syscall.Statfs(g.dir, &fs) == nil {
		l.disk = int64(fs.Bavail) * int64(fs.Bsize)
	}
	return l
}

// cpuTicks are the ticks of all CPUs since boot: idle ones (waiting for a disk included), and all.
func cpuTicks() (idle, total uint64) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	for i, f := range bytes.Fields(line) {
		if i == 0 || i > 8 { // the name, and guest times, which user time includes
			continue
		}
		n, err := strconv.ParseUint(string(f), 10, 64)
		if err != nil {
			return 0, 0
		}
		total += n
		if i == 4 || i == 5 {
			idle += n
		}
	}
	return idle, total
}

func availableMemory() int64 {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return -1
	}
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("MemAvailable:")); ok {
			f := bytes.Fields(rest)
			if len(f) == 0 {
				return -1
			}
			kb, err := strconv.ParseInt(string(f[0]), 10, 64)
			if err != nil {
				return -1
			}
			return kb << 10
		}
	}
	return -1
}

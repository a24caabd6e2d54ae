package killtest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// skew puts the wall clock of this process forward, or back, by whole seconds: everything that
// asks the system for the time of the day is told another one, while the monotonic clock is
// left alone. Go asks through a function that the kernel maps into the process (the vDSO), so
// its first instruction becomes a jump to one that makes the system call and adds to its answer.
func skew(by time.Duration) error {
	if by == 0 {
		return nil
	}
	before := time.Now()
	base, err := vdso()
	if err != nil {
		return err
	}
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	const most = 1 << 16
	f, err := elf.NewFile(io.NewSectionReader(mem, int64(base), most))
	if err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	at := map[string]elf.Symbol{}
	for _, s := range symbols {
		at[s.Name] = s
	}
	clock, room := at["__vdso_clock_gettime"], at["__vdso_gettimeofday"] // nobody calls the other one
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME?
		0x75, 7, // jne to the ret
		0x48, 0x81, 0x06, 0, 0, 0, 0, // add qword [rsi], seconds
		0xc3, // ret
	}
	binary.LittleEndian.PutUint32(code[14:], uint32(int32(by/time.Second)))
	if clock.Value == 0 || clock.Value%8 != 0 || room.Size < uint64(len(code)) {
		return errors.New("the vDSO is not as it is known here")
	}
	if _, err := mem.WriteAt(code, int64(base+room.Value)); err != nil {
		return fmt.Errorf("write to the vDSO: %w", err)
	}
	// Eight bytes in one piece, for other threads may be about to read them.
	jump := make([]byte, 8)
	if _, err := mem.ReadAt(jump, int64(base+clock.Value)); err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	jump[0] = 0xe9
	binary.LittleEndian.PutUint32(jump[1:], uint32(int32(int64(room.Value)-int64(clock.Value)-5)))
	if _, err := mem.WriteAt(jump, int64(base+clock.Value)); err != nil {
		return fmt.Errorf("write to the vDSO: %w", err)
	}
	if moved := time.Now().Round(0).Sub(before.Round(0)); (moved - by).Abs() > 5*time.Second {
		return fmt.Errorf("the clock has moved by %v", moved)
	}
	return nil
}

// vdso is where the kernel has mapped it.
func vdso() (uint64, error) {
	const tag = 33 // AT_SYSINFO_EHDR
	aux, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return 0, err
	}
	for r := bytes.NewReader(aux); ; {
		var entry struct{ Key, Value uint64 }
		if binary.Read(r, binary.LittleEndian, &entry) != nil {
			return 0, errors.New("there is no vDSO")
		}
		if entry.Key == tag {
			return entry.Value, nil
		}
	}
}

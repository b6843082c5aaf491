package deployment

import (
	"io"
	"os"
	"strings"
)

// tailSize is the maximum size of the output in error messages, in bytes.
const tailSize = 4096

// Tail returns the last part of an output file, or the error message if the file cannot be read.
func Tail(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tailSize {
		_, _ = f.Seek(-tailSize, io.SeekEnd)
	}
	text, _ := io.ReadAll(f)
	return strings.TrimSpace(string(text))
}

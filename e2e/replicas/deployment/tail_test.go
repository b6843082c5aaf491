package deployment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Tail returns the last part of a long output. If the file is missing, it returns the reason.
func TestTail(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	if got := Tail(log); !strings.Contains(got, "no such file") {
		t.Errorf("without a file: %q", got)
	}
	for name, text := range map[string]string{"short": " why it ended\n", "long": strings.Repeat("line\n", 10_000) + "why it ended\n"} {
		if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Tail(log); !strings.HasSuffix(got, "why it ended") || len(got) > tailSize || got[0] == ' ' {
			t.Errorf("%s: %d bytes, %q", name, len(got), got[:min(len(got), 20)])
		}
	}
}

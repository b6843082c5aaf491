package lastlines

import (
	"io"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	log := new(Lines)
	for range maxLines {
		_, _ = io.WriteString(log, "old\n")
	}
	_, _ = io.WriteString(log, "new\n")
	if got := log.String(); strings.Count(got, "\n") != maxLines || !strings.HasSuffix(got, "old\nnew\n") {
		t.Errorf("%q", got)
	}
}

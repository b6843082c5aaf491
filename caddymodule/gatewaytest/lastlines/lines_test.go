package lastlines

import (
	"io"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	t.Parallel()
	log := new(Lines)
	for range most {
		_, _ = io.WriteString(log, "old\n")
	}
	_, _ = io.WriteString(log, "new\n")
	if got := log.String(); strings.Count(got, "\n") != most || !strings.HasSuffix(got, "old\nnew\n") {
		t.Errorf("%q", got)
	}
}

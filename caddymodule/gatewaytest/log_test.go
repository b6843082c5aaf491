package gatewaytest

import (
	"io"
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	t.Parallel()
	log := new(lastLines)
	for range maxLastLines {
		_, _ = io.WriteString(log, "old\n")
	}
	_, _ = io.WriteString(log, "new\n")
	if got := log.String(); strings.Count(got, "\n") != maxLastLines || !strings.HasSuffix(got, "old\nnew\n") {
		t.Errorf("%q", got)
	}
}

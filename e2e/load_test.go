package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// load is the result of a wrk run, as printed by wrk.lua.
type load struct {
	requests, other               int // other is the number of responses with a status other than 200
	connect, read, write, timeout int // numbers of socket errors
	p50, p99, max                 int // latency in µs
}

// runningLoad is a running wrk process.
type runningLoad struct {
	cmd    *exec.Cmd
	output bytes.Buffer
}

// startLoad starts wrk, which requests the address in a loop.
func startLoad(t *testing.T, token, address, duration string) *runningLoad {
	t.Helper()
	if _, err := exec.LookPath("wrk"); err != nil {
		t.Skip("wrk is not installed")
	}
	l := &runningLoad{cmd: exec.CommandContext(t.Context(), "wrk", "-t2", "-c"+strconv.Itoa(connections), "-d"+duration, "-s", "wrk.lua",
		"-H", "Authorization: Bearer "+token, address)}
	l.cmd.Stdout, l.cmd.Stderr = &l.output, &l.output
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l
}

// wait waits until wrk exits and returns the result.
func (l *runningLoad) wait(t *testing.T) (result load) {
	t.Helper()
	if err := l.cmd.Wait(); err != nil {
		t.Fatalf("wrk: %v\n%s", err, l.output.String())
	}
	_, line, found := strings.Cut(l.output.String(), "requests=")
	_, err := fmt.Sscanf(line, "%d other=%d connect=%d read=%d write=%d timeout=%d p50us=%d p99us=%d maxus=%d",
		&result.requests, &result.other, &result.connect, &result.read, &result.write, &result.timeout,
		&result.p50, &result.p99, &result.max)
	if !found || err != nil {
		t.Fatalf("wrk's output: %v\n%s", err, l.output.String())
	}
	return result
}

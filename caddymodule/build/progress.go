package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caddyserver/xcaddy"
)

// stepWords say what each of xcaddy's steps is.
var stepWords = map[xcaddy.Step]string{
	xcaddy.StepCreateEnvironment: "make a temporary module",
	xcaddy.StepInitializeModule:  "replace this module by its folder",
	xcaddy.StepPinVersions:       "require Caddy and this module",
	xcaddy.StepWindowsResources:  "make Windows resources",
	xcaddy.StepTidyModule:        "tidy the temporary module",
	xcaddy.StepCompile:           "compile: some seconds, but minutes the first time",
	xcaddy.StepCleanup:           "remove the temporary module",
}

// packagesPerLine is how many packages are compiled for each line, where the lines are
// not for a terminal.
const packagesPerLine = 100

// progress shows what is done, and keeps back what the last step printed, for the case
// that it fails. A good build prints warnings too: offline, go mod tidy does not find
// what only the tests of our modules' modules import.
type progress struct {
	out      io.Writer
	terminal bool // out is one: there, one line is written again and again
	output   []byte
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

// say shows what is being done.
func (p *progress) say(what string) {
	fmt.Fprintf(p.out, "build: %s\n", what)
}

// step is an OnStep callback. xcaddy never runs two at a time.
func (p *progress) step(event *xcaddy.StepEvent) error {
	words := stepWords[event.Step]
	if words == "" {
		words = string(event.Step)
	}
	p.say(words)
	if event.Step == xcaddy.StepCompile {
		return p.compile(event.Output)
	}
	output, err := io.ReadAll(event.Output)
	if event.Step != xcaddy.StepCleanup {
		p.output = output
	}
	return err
}

// compile counts the packages that go build -v names. Those that are in the build cache
// are not compiled again, and not named.
func (p *progress) compile(output io.Reader) error {
	p.output = nil
	packages := 0
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		p.output = append(p.output, line...)
		if name := strings.TrimSpace(line); name != "" && !strings.ContainsAny(name, " \t:[") {
			packages++
			p.compiled(packages, name)
		}
		if err == io.EOF {
			p.endLine(packages)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// compiled shows how many packages are compiled.
func (p *progress) compiled(n int, name string) {
	switch {
	case p.terminal:
		const width = 60
		fmt.Fprintf(p.out, "\rbuild: %d packages, %-*.*s", n, width, width, name)
	case n%packagesPerLine == 0:
		p.say(fmt.Sprintf("%d packages compiled", n))
	}
}

// endLine leaves the line that was written again and again.
func (p *progress) endLine(packages int) {
	if p.terminal && packages > 0 {
		fmt.Fprintln(p.out)
	}
}

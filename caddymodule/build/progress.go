package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/caddyserver/xcaddy"
)

// stepWords describe xcaddy's steps.
var stepWords = map[xcaddy.Step]string{
	xcaddy.StepCreateEnvironment: "make a temporary module",
	xcaddy.StepInitializeModule:  "replace this module by its folder",
	xcaddy.StepPinVersions:       "require Caddy and this module",
	xcaddy.StepWindowsResources:  "make Windows resources",
	xcaddy.StepTidyModule:        "tidy the temporary module",
	xcaddy.StepCompile:           "compile: some seconds, but minutes the first time",
	xcaddy.StepCleanup:           "remove the temporary module",
}

// packagesPerLine is how many packages are compiled between two lines of output that is no terminal.
const packagesPerLine = 100

// progress shows what is being done. It keeps the output of the last step in case that fails: a successful build prints
// warnings too, since offline go mod tidy lacks the modules that only tests of dependencies import.
type progress struct {
	out      io.Writer
	terminal bool // out is one, where a line can be rewritten
	output   []byte
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) say(what string) { fmt.Fprintf(p.out, "build: %s\n", what) }

// step is an OnStep callback. xcaddy never runs two at a time.
func (p *progress) step(event *xcaddy.StepEvent) error {
	p.say(cmp.Or(stepWords[event.Step], string(event.Step)))
	if event.Step == xcaddy.StepCompile {
		return p.compile(event.Output)
	}
	output, err := io.ReadAll(event.Output)
	if event.Step != xcaddy.StepCleanup {
		p.output = output
	}
	return err
}

// compile counts the packages that go build -v names, which are those that are not in the build cache.
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
			if p.terminal && packages > 0 {
				fmt.Fprintln(p.out) // after the rewritten line
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *progress) compiled(n int, name string) {
	switch {
	case p.terminal:
		const width = 60
		fmt.Fprintf(p.out, "\rbuild: %d packages, %-*.*s", n, width, width, name)
	case n%packagesPerLine == 0:
		p.say(fmt.Sprintf("%d packages compiled", n))
	}
}

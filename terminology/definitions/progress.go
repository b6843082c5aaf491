package definitions

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Terminal returns a file for Options.Terminal to draw a bar on, or nil if it is no terminal.
func Terminal(f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return f
}

const (
	logEvery  = 5 * time.Second        // between lines in the log
	drawEvery = 100 * time.Millisecond // between bars
	lookEvery = 1 << 20                // bytes between looks at the clock
)

// progress reports how far one file is loaded, in the log and by a bar on a terminal. A file that loads at once gets
// neither.
type progress struct {
	ctx      context.Context
	src      io.Reader
	file     string
	size     int64
	options  *Options
	read     int64
	looked   int64 // how much had been read at the last look at the clock
	logged   time.Time
	drawn    time.Time
	barDrawn bool
}

func newProgress(ctx context.Context, src io.Reader, file string, size int64, o *Options) *progress {
	now := o.Now()
	return &progress{ctx: ctx, src: src, file: file, size: size, options: o, logged: now, drawn: now}
}

// Read implements [io.Reader], and reports now and then.
func (p *progress) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	if p.read += int64(n); p.read-p.looked >= lookEvery {
		p.looked = p.read
		p.tell(p.options.Now())
	}
	return n, err
}

func (p *progress) tell(now time.Time) {
	if now.Sub(p.logged) >= logEvery {
		p.logged = now
		p.options.Logger.InfoContext(p.ctx, "loading definitions", slog.String("file", p.file),
			slog.Int64("percent", p.percent()), slog.Int64("bytes", p.read), slog.Int64("of", p.size))
	}
	if p.options.Terminal != nil && now.Sub(p.drawn) >= drawEvery {
		p.drawn, p.barDrawn = now, true
		p.draw(p.bar())
	}
}

func (p *progress) percent() int64 { return min(100, 100*p.read/max(1, p.size)) }

// bar returns a line that replaces the last.
func (p *progress) bar() string {
	const width = 40
	full := int(p.percent()) * width / 100
	return fmt.Sprintf("\r[%s%s] %3d %% %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), p.percent(), p.file)
}

// end removes the bar.
func (p *progress) end() {
	if p.barDrawn {
		p.draw("\r\x1b[K")
	}
}

// draw writes to the terminal. It ignores errors, which are no reason to stop loading.
func (p *progress) draw(s string) {
	_, _ = io.WriteString(p.options.Terminal, s)
}

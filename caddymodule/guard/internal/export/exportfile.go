package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// typeNDJSON is the media type of an export's files.
const typeNDJSON = "application/fhir+ndjson"

// acceptFile asks for a file as the server keeps it. A server that keeps files as Binaries, as HAPI does, answers with the
// Binary in XML if Accept names NDJSON in another spelling than the kick-off did.
var acceptFile = []string{"*/*"}

// ServeFile answers with a file of an export.
func (x *Exports) ServeFile(w http.ResponseWriter, sealed string) (interaction.Interaction, error) {
	j, i, err := x.unsealed(FilePath, sealed)
	if err == nil && x.R.Method != http.MethodGet && x.R.Method != http.MethodHead {
		err = message.NotFound()
	}
	if err == nil {
		x, err = x.underPolicies(j, i)
	}
	if err != nil {
		return i, err
	}
	return i, x.stream(w, j)
}

// stream writes a file to the client, line by line.
func (x *Exports) stream(w http.ResponseWriter, j job) error {
	ctx := x.R.Context()
	file := &fileWriter{to: w, head: x.R.Method == http.MethodHead, keeps: x.keeps(ctx, j), limit: x.Limit}
	if !j.Judged {
		return file.finish(x.pass(ctx, message.Get(j.Path, j.Query), file))
	}
	m, err := x.finished(ctx, j)
	if err != nil {
		return err
	}
	return file.finish(x.passAll(ctx, j, m, file))
}

// finished asks for the manifest of a job that has ended.
func (x *Exports) finished(ctx context.Context, j job) (manifest, error) {
	a, err := x.Server.Ask(ctx, message.Get(j.Path, j.Query))
	if err != nil {
		return manifest{}, err
	}
	if a.Status != http.StatusOK {
		return manifest{}, operation.FailedOperation(a, nil)
	}
	return readManifest(j, a.Body)
}

// hasVisible reports whether policies leave a line of the files of a type.
func (x *Exports) hasVisible(ctx context.Context, j job, m manifest) (bool, error) {
	if x.Judge.DeniesType(ctx, j.Holds) {
		return false, nil // without reading all of it
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the rest of a file
	probe := &fileWriter{keeps: x.keeps(ctx, j), limit: x.Limit}
	err := x.passAll(ctx, j, m, probe)
	if errors.Is(err, errVisible) {
		return true, nil
	}
	return false, err
}

// passAll passes all files of a type to w.
func (x *Exports) passAll(ctx context.Context, j job, m manifest, w *fileWriter) error {
	for _, file := range m.Output {
		if file.Type != j.Holds {
			continue
		}
		path, query, err := below(j.Base, file.URL)
		if err == nil {
			err = x.pass(ctx, message.Get(path, query), w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass passes one of the FHIR server's files to w.
func (x *Exports) pass(ctx context.Context, c message.Call, w *fileWriter) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.header, w.status = http.Header{}, 0
	defer func() {
		if message.ForgiveAbort(recover(), w.failure); w.failure != nil {
			err = w.failure
		}
	}()
	if err := x.Server.Pass(ctx, c, acceptFile, w); err != nil {
		return err
	}
	return w.end()
}

// keeps returns the function that decides about each line of a file: an error says that it is not a resource.
func (x *Exports) keeps(ctx context.Context, j job) func(line []byte) (bool, error) {
	return func(line []byte) (bool, error) {
		res, err := x.At.Parse(line)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errFile, err)
		}
		return j.All && !j.Judged || res.Type == j.Holds && x.Judge.Ruled(ctx, res) != rule.Deny, nil
	}
}

// fileWriter writes the lines of files that are kept, and nothing before the first of them. It has no client if it only
// looks for such a line.
type fileWriter struct {
	to    http.ResponseWriter // the client; nil: the first line that is kept is errVisible
	head  bool                // without a body
	keeps func(line []byte) (bool, error)
	limit int64 // of a line, and of a Binary, in bytes

	header  http.Header // of the current file
	status  int         // of the current file
	line    bytes.Buffer
	began   bool  // the client has the header
	failure error // to write
}

var (
	errFile    = errors.New("file of an export is not NDJSON")
	errVisible = errors.New("a line is visible")
)

// Header implements http.ResponseWriter.
func (f *fileWriter) Header() http.Header { return f.header }

// WriteHeader implements http.ResponseWriter.
func (f *fileWriter) WriteHeader(status int) {
	if f.status == 0 && status >= http.StatusOK {
		f.status = status
	}
}

// Write implements http.ResponseWriter.
func (f *fileWriter) Write(p []byte) (int, error) {
	f.WriteHeader(http.StatusOK)
	switch {
	case f.failure != nil:
	case f.status != http.StatusOK:
		return len(p), nil
	case f.header.Get("Content-Encoding") != "":
		f.failure = message.Withheld(fmt.Errorf("%w: Content-Encoding %s", errFile, f.header.Get("Content-Encoding")))
	case f.isBinary():
		f.failure = f.hold(p)
	default:
		f.failure = f.writeLines(p)
	}
	if f.failure != nil {
		return 0, f.failure
	}
	return len(p), nil
}

// isBinary reports whether the file comes in JSON, as the Binary in which the server keeps it.
func (f *fileWriter) isBinary() bool {
	return (&message.Answer{Header: f.header}).IsJSON()
}

// hold holds a part of a line, or of a Binary.
func (f *fileWriter) hold(p []byte) error {
	if int64(f.line.Len()+len(p)) > f.limit {
		return message.Withheld(message.ErrTooLong)
	}
	f.line.Write(p)
	return nil
}

// writeLines writes the lines that are complete, and holds the rest.
func (f *fileWriter) writeLines(p []byte) error {
	for {
		line, rest, complete := bytes.Cut(p, []byte("\n"))
		if err := f.hold(line); err != nil || !complete {
			return err
		}
		if err := f.flushLine(); err != nil {
			return err
		}
		p = rest
	}
}

// flushLine writes a line, if it is kept.
func (f *fileWriter) flushLine() error {
	defer f.line.Reset()
	if len(bytes.TrimSpace(f.line.Bytes())) == 0 {
		return nil
	}
	kept, err := f.keeps(f.line.Bytes())
	switch {
	case err != nil:
		return message.Withheld(err)
	case !kept:
		return nil
	case f.to == nil:
		return errVisible
	}
	f.begin()
	if f.head {
		return nil
	}
	_, err = f.to.Write(append(f.line.Bytes(), '\n'))
	return err
}

// begin writes the header, once.
func (f *fileWriter) begin() {
	if f.began {
		return
	}
	f.began = true
	f.to.Header().Set("Content-Type", typeNDJSON)
	if expires := f.header.Get("Expires"); expires != "" {
		f.to.Header().Set("Expires", expires)
	}
	f.to.WriteHeader(http.StatusOK)
}

// FlushError lets what was written so far be sent.
func (f *fileWriter) FlushError() error {
	if !f.began {
		return nil
	}
	return http.NewResponseController(f.to).Flush()
}

// end ends one of the FHIR server's files.
func (f *fileWriter) end() error {
	switch {
	case f.status == 0:
		return message.Withheld(message.ErrNoAnswer)
	case f.status != http.StatusOK:
		return operation.FailedOperation(&message.Answer{Status: f.status, Header: f.header}, nil)
	case !f.isBinary() || f.line.Len() == 0:
		return f.flushLine()
	}
	content, err := unwrap(f.line.Bytes())
	if err != nil {
		return message.Withheld(err)
	}
	f.line.Reset()
	if err := f.writeLines(content); err != nil {
		return err
	}
	return f.flushLine()
}

// unwrap returns the content of a Binary that holds NDJSON.
func unwrap(text []byte) ([]byte, error) {
	var binary struct {
		ResourceType, ContentType string
		Data                      []byte // base64
	}
	if err := json.Unmarshal(text, &binary); err != nil {
		return nil, fmt.Errorf("%w: %w", errFile, err)
	}
	if binary.ResourceType != "Binary" || !isNDJSON(binary.ContentType) {
		return nil, fmt.Errorf("%w: %s of %q", errFile, binary.ResourceType, binary.ContentType)
	}
	return binary.Data, nil
}

// isNDJSON reports whether a media type is one of NDJSON.
func isNDJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasSuffix(media, "ndjson")
}

// finish ends what the client gets. A file that turns out to be none after its first lines are sent is broken off, so
// that the client does not take it for complete.
func (f *fileWriter) finish(err error) error {
	switch {
	case err == nil:
		f.begin()
	case f.began:
		panic(http.ErrAbortHandler)
	}
	return err
}

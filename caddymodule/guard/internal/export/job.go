package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const (
	// JobPath is the path of sealed links to jobs, below the FHIR base.
	JobPath = "_job/"
	// FilePath is the path of sealed links to the files of jobs, below the FHIR base.
	FilePath = "_file/"
	// jobLifetime is how long links to a job and its files are valid.
	jobLifetime = 7 * 24 * time.Hour
)

// job is the content of a sealed link to a job or to one of its files.
type job struct {
	Path    string   `json:"p"` // on the FHIR server, below its base
	Query   string   `json:"q,omitempty"`
	Base    string   `json:"b"` // path of the FHIR API in the FHIR server's links
	Request string   `json:"r"` // kick-off as sent by the client
	Types   []string `json:"t,omitempty"`
	All     bool     `json:"a,omitempty"` // all types
	// Judged reports whether policies judged resources at the kick-off. The kick-off was then checked for leaks.
	Judged bool `json:"j,omitempty"`
	// Holds is the type of a file's resources. For a judged job, Path and Query are those of the job, and the file combines all
	// files of this type.
	Holds string `json:"h,omitempty"`
}

// sealed returns the address of a job or file for the token.
func (x *Exports) sealed(ctx context.Context, path string, j job) (string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sealed, err := x.Sealing.Seal(ctx, string(text), x.bindingOf(path))
	if err != nil {
		return "", fmt.Errorf("sealing a job's link: %w", err)
	}
	return x.Addresses.URL(path+sealed, ""), nil
}

// bindingOf returns different bindings for jobs and files.
func (x *Exports) bindingOf(path string) string { return path + x.Binding }

// unsealed returns the content of a link to a job or file, with the interaction of its kick-off. A link of another token gets
// 404.
func (x *Exports) unsealed(path, sealed string) (j job, i interaction.Interaction, err error) {
	text, err := x.Sealing.Unseal(x.R.Context(), sealed, x.bindingOf(path), jobLifetime)
	if err != nil {
		return j, i, message.NotFound()
	}
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return j, i, fmt.Errorf("job's link: %w", err)
	}
	i, err = j.kickOff().Interaction()
	return j, i, err
}

// kickOff returns the call that started the job.
func (j job) kickOff() message.Call {
	path, query, _ := strings.Cut(j.Request, "?")
	return message.Get(path, query)
}

// underPolicies returns the exports under the current policies. If policies may now deny resources but did not at the kick-off,
// the job is rejected, because its filters may have used records that they deny.
func (x *Exports) underPolicies(j job, i interaction.Interaction) (*Exports, error) {
	of, err := x.Judge.ForCall(x.R.Context(), j.kickOff(), i)
	if err != nil {
		return nil, err
	}
	if of.MayDeny() && !j.Judged {
		return nil, message.Forbidden(message.ErrOracle, "The rules of this server have changed since the export began: begin it again.")
	}
	under := *x
	under.Judge = of
	return &under, nil
}

// ServeJob returns the status of a job, or cancels it.
func (x *Exports) ServeJob(sealed string) (interaction.Interaction, *message.Response, error) {
	j, i, err := x.unsealed(JobPath, sealed)
	if err != nil {
		return i, nil, err
	}
	if x, err = x.underPolicies(j, i); err != nil {
		return i, nil, err
	}
	serve := x.jobStatus
	if x.R.Method == http.MethodDelete {
		serve = x.cancelJob
	}
	a, err := serve(x.R.Context(), j)
	return i, a, err
}

// cancelJob cancels a job, or deletes its files.
func (x *Exports) cancelJob(ctx context.Context, j job) (*message.Response, error) {
	a, err := x.Server.Do(ctx, message.Call{Method: http.MethodDelete, Path: j.Path, Query: j.Query})
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, operation.FailedOperation(a, nil)
	}
	return message.NewResponse(http.StatusAccepted, nil), nil
}

func (x *Exports) jobStatus(ctx context.Context, j job) (*message.Response, error) {
	if x.R.Method != http.MethodGet && x.R.Method != http.MethodHead {
		return nil, message.NotFound()
	}
	a, err := x.Server.Do(ctx, message.Get(j.Path, j.Query))
	switch {
	case err != nil:
		return nil, err
	case a.Status == http.StatusAccepted && j.Judged: // progress may count resources
		return answerWith(http.StatusAccepted, nil, a, "Retry-After"), nil
	case a.Status == http.StatusAccepted:
		return answerWith(http.StatusAccepted, nil, a, "X-Progress", "Retry-After"), nil
	case a.Status != http.StatusOK:
		return nil, operation.FailedOperation(a, nil)
	}
	text, err := x.manifest(ctx, j, a.Body)
	if err != nil {
		return nil, err
	}
	done := answerWith(http.StatusOK, text, a, "Expires")
	done.Header.Set("Content-Type", "application/json")
	return done, nil
}

// answerWith returns a response of the gateway with some headers of the FHIR server's response.
func answerWith(status int, body []byte, a *message.Response, names ...string) *message.Response {
	out := message.NewResponse(status, body)
	for _, name := range names {
		if value := a.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	return out
}

// manifest is the result of an export (Bulk Data Access 2.0, "Response - Complete Status").
type manifest struct {
	TransactionTime     string       `json:"transactionTime"`
	Request             string       `json:"request"`
	RequiresAccessToken bool         `json:"requiresAccessToken"`
	Output              []outputFile `json:"output"`
	Deleted             []outputFile `json:"deleted,omitempty"`
	Error               []outputFile `json:"error"`
}

type outputFile struct {
	Type  string `json:"type"`
	URL   string `json:"url"`
	Count *int64 `json:"count,omitempty"`
}

var errManifest = errors.New("end of an export that cannot be judged")

// readManifest parses the result of an export. Its output must consist of types that the job may export.
func readManifest(j job, text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return m, message.NewWithheldError(fmt.Errorf("%w: %w", errManifest, err))
	}
	for _, file := range m.Output {
		if !(access.UnrestrictedTypes{Names: j.Types, All: j.All}).Has(file.Type) {
			return m, message.Forbidden(message.ErrScope, "The export holds types that no system scope allows to export.")
		}
	}
	return m, nil
}

// manifest writes the result of an export with sealed links. Unknown members are dropped. Files of deleted resources may
// contain any type, so they require a job for all types.
func (x *Exports) manifest(ctx context.Context, j job, text []byte) ([]byte, error) {
	m, err := readManifest(j, text)
	if err != nil {
		return nil, err
	}
	m.Request, m.RequiresAccessToken = x.Addresses.URL(j.Request, ""), true
	if j.Judged {
		if err := x.judgeManifest(ctx, j, &m); err != nil {
			return nil, err
		}
		return json.Marshal(m)
	}
	if !j.All {
		m.Deleted = nil
	}
	for _, files := range []*[]outputFile{&m.Output, &m.Deleted, &m.Error} {
		if *files == nil && files != &m.Deleted {
			*files = []outputFile{}
		}
		for n := range *files {
			if err := x.sealFile(ctx, j, &(*files)[n]); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(m)
}

// judgeManifest reduces the output to one file for each type with a visible resource. The number and counts of the FHIR
// server's files, empty files, and files of deletions and errors would all reveal denied resources.
func (x *Exports) judgeManifest(ctx context.Context, j job, m *manifest) error {
	server := *m
	m.Output, m.Deleted, m.Error = []outputFile{}, nil, []outputFile{}
	for _, file := range server.Output {
		if slices.ContainsFunc(m.Output, func(seen outputFile) bool { return seen.Type == file.Type }) {
			continue
		}
		j.Holds = file.Type
		ok, err := x.hasVisible(ctx, j, server)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		link, err := x.sealed(ctx, FilePath, j)
		if err != nil {
			return err
		}
		m.Output = append(m.Output, outputFile{Type: file.Type, URL: link})
	}
	slices.SortFunc(m.Output, func(a, b outputFile) int { return strings.Compare(a.Type, b.Type) })
	return nil
}

// sealFile seals a file's address.
func (x *Exports) sealFile(ctx context.Context, j job, file *outputFile) (err error) {
	if j.Path, j.Query, err = below(j.Base, file.URL); err != nil {
		return err
	}
	j.Holds = file.Type
	file.URL, err = x.sealed(ctx, FilePath, j)
	return err
}

// typeNDJSON is the media type of an export's files.
const typeNDJSON = "application/fhir+ndjson"

// acceptFile accepts a file in any format. HAPI stores files as Binaries, and returns the Binary in XML if Accept spells NDJSON
// differently than the kick-off.
var acceptFile = []string{"*/*"}

// ServeFile returns a file of an export.
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

// finished requests the manifest of a completed job.
func (x *Exports) finished(ctx context.Context, j job) (manifest, error) {
	a, err := x.Server.Do(ctx, message.Get(j.Path, j.Query))
	if err != nil {
		return manifest{}, err
	}
	if a.Status != http.StatusOK {
		return manifest{}, operation.FailedOperation(a, nil)
	}
	return readManifest(j, a.Body)
}

// hasVisible reports whether a file of a type contains a line that policies do not deny.
func (x *Exports) hasVisible(ctx context.Context, j job, m manifest) (bool, error) {
	if x.Judge.DeniesType(ctx, j.Holds) {
		return false, nil // without reading the files
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // skip the rest of a file
	probe := &fileWriter{keeps: x.keeps(ctx, j), limit: x.Limit}
	err := x.passAll(ctx, j, m, probe)
	if errors.Is(err, errVisible) {
		return true, nil
	}
	return false, err
}

// passAll streams all files of a type to w.
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

// pass streams one of the FHIR server's files to w.
func (x *Exports) pass(ctx context.Context, c message.Call, w *fileWriter) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.header, w.status = http.Header{}, 0
	defer func() {
		if message.RepanicUnlessAborted(recover(), w.failure); w.failure != nil {
			err = w.failure
		}
	}()
	if err := x.Server.Pass(ctx, c, acceptFile, w); err != nil {
		return err
	}
	return w.end()
}

// keeps returns a filter for the lines of a file. The filter returns an error for a line that is not a resource.
func (x *Exports) keeps(ctx context.Context, j job) func(line []byte) (bool, error) {
	return func(line []byte) (bool, error) {
		res, err := x.Addresses.Parse(line)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errFile, err)
		}
		return j.All && !j.Judged || res.Type == j.Holds && x.Judge.PolicyEffect(ctx, res) != rule.Deny, nil
	}
}

// fileWriter writes the visible lines of files, and no header before the first of them. Without a client, it only detects such
// a line.
type fileWriter struct {
	to    http.ResponseWriter // client; nil: the first visible line returns errVisible
	head  bool                // no body
	keeps func(line []byte) (bool, error)
	limit int64 // maximum size of a line or a Binary in bytes

	header  http.Header // header of the current file
	status  int         // status of the current file
	line    bytes.Buffer
	began   bool  // the header was sent to the client
	failure error // error of Write
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
		f.failure = message.NewWithheldError(fmt.Errorf("%w: Content-Encoding %s", errFile, f.header.Get("Content-Encoding")))
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

// isBinary reports whether the file is sent as JSON, that is, as the Binary in which the FHIR server stores it.
func (f *fileWriter) isBinary() bool {
	return (&message.Response{Header: f.header}).IsJSON()
}

// hold buffers a part of a line, or of a Binary.
func (f *fileWriter) hold(p []byte) error {
	if int64(f.line.Len()+len(p)) > f.limit {
		return message.NewWithheldError(message.ErrTooLong)
	}
	f.line.Write(p)
	return nil
}

// writeLines writes the complete lines, and buffers the rest.
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

// flushLine writes the buffered line if it is visible.
func (f *fileWriter) flushLine() error {
	defer f.line.Reset()
	if len(bytes.TrimSpace(f.line.Bytes())) == 0 {
		return nil
	}
	kept, err := f.keeps(f.line.Bytes())
	switch {
	case err != nil:
		return message.NewWithheldError(err)
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

// FlushError flushes the written lines.
func (f *fileWriter) FlushError() error {
	if !f.began {
		return nil
	}
	return http.NewResponseController(f.to).Flush()
}

// end writes the last line of a file, or returns an error if the FHIR server failed or the file is malformed.
func (f *fileWriter) end() error {
	switch {
	case f.status == 0:
		return message.NewWithheldError(message.ErrNoAnswer)
	case f.status != http.StatusOK:
		return operation.FailedOperation(&message.Response{Status: f.status, Header: f.header}, nil)
	case !f.isBinary() || f.line.Len() == 0:
		return f.flushLine()
	}
	content, err := unwrap(f.line.Bytes())
	if err != nil {
		return message.NewWithheldError(err)
	}
	f.line.Reset()
	if err := f.writeLines(content); err != nil {
		return err
	}
	return f.flushLine()
}

// unwrap returns the content of a Binary with NDJSON.
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

// isNDJSON reports whether a media type is NDJSON.
func isNDJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasSuffix(media, "ndjson")
}

// finish ends the client's response. If an error occurs after the first lines were sent, it aborts the connection, so that the
// client does not mistake the file for complete.
func (f *fileWriter) finish(err error) error {
	switch {
	case err == nil:
		f.begin()
	case f.began:
		panic(http.ErrAbortHandler)
	}
	return err
}

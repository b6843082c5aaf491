package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const (
	// JobPath is where sealed links to jobs lead, below the FHIR base.
	JobPath = "_job/"
	// FilePath is where sealed links to the files of jobs lead, below the FHIR base.
	FilePath = "_file/"
	// jobLifetime is how long a job and its files can be asked for.
	jobLifetime = 7 * 24 * time.Hour
)

// job is what a sealed link to a job carries, or to one of its files.
type job struct {
	Path    string   `json:"p"` // on the FHIR server, below its base
	Query   string   `json:"q,omitempty"`
	Base    string   `json:"b"` // path of the FHIR API in the server's links
	Request string   `json:"r"` // the kick-off as the client sent it
	Types   []string `json:"t,omitempty"`
	All     bool     `json:"a,omitempty"` // all types
	// Judged reports whether policies that judge each resource were in force at the kick-off, which was checked for them.
	Judged bool `json:"j,omitempty"`
	// Holds is the type of a file's resources. For a judged job, Path and Query are those of the job, and the file is all
	// of its files of this type.
	Holds string `json:"h,omitempty"`
}

// sealed is the address of a job or file for the token.
func (x *Exports) sealed(ctx context.Context, path string, j job) (string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sealed, err := x.Sealing.Seal(ctx, string(text), x.bindingOf(path))
	if err != nil {
		return "", fmt.Errorf("sealing a job's link: %w", err)
	}
	return x.At.URL(path+sealed, ""), nil
}

// bindingOf keeps links apart by what they lead to.
func (x *Exports) bindingOf(path string) string { return path + x.Binding }

// unsealed is what a link to a job or file carries, with the kick-off that it came from. Another token's is not there.
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

// kickOff is the call that began the job.
func (j job) kickOff() message.Call {
	path, query, _ := strings.Cut(j.Request, "?")
	return message.Get(path, query)
}

// underPolicies returns the exports that answer a link to a job or file under the policies in force now. A kick-off that was
// not checked for policies like them may have selected by records that they deny.
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

// ServeJob answers for the status of a job, or cancels it.
func (x *Exports) ServeJob(sealed string) (interaction.Interaction, *message.Answer, error) {
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

// cancelJob cancels a job, or deletes what it made.
func (x *Exports) cancelJob(ctx context.Context, j job) (*message.Answer, error) {
	a, err := x.Server.Ask(ctx, message.Call{Method: http.MethodDelete, Path: j.Path, Query: j.Query})
	if err != nil {
		return nil, err
	}
	if !a.Succeeded() {
		return nil, operation.FailedOperation(a, nil)
	}
	return message.NewAnswer(http.StatusAccepted, nil), nil
}

// jobStatus asks how far a job has come.
func (x *Exports) jobStatus(ctx context.Context, j job) (*message.Answer, error) {
	if x.R.Method != http.MethodGet && x.R.Method != http.MethodHead {
		return nil, message.NotFound()
	}
	a, err := x.Server.Ask(ctx, message.Get(j.Path, j.Query))
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

// answerWith is an answer of our own with some headers of the FHIR server's.
func answerWith(status int, body []byte, a *message.Answer, names ...string) *message.Answer {
	out := message.NewAnswer(status, body)
	for _, name := range names {
		if value := a.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	return out
}

// manifest is the end of an export (Bulk Data Access 2.0, "Response - Complete Status").
type manifest struct {
	TransactionTime     string       `json:"transactionTime"`
	Request             string       `json:"request"`
	RequiresAccessToken bool         `json:"requiresAccessToken"`
	Output              []outputFile `json:"output"`
	Deleted             []outputFile `json:"deleted,omitempty"`
	Error               []outputFile `json:"error"`
}

// outputFile is a file of an export.
type outputFile struct {
	Type  string `json:"type"`
	URL   string `json:"url"`
	Count *int64 `json:"count,omitempty"`
}

var errManifest = errors.New("end of an export that cannot be judged")

// readManifest reads the end of an export, whose output must be of types that the job may export.
func readManifest(j job, text []byte) (manifest, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return m, message.Withheld(fmt.Errorf("%w: %w", errManifest, err))
	}
	for _, file := range m.Output {
		if !(access.WholeTypes{Names: j.Types, All: j.All}).Has(file.Type) {
			return m, message.Forbidden(message.ErrScope, "The export holds types that no system scope allows to export.")
		}
	}
	return m, nil
}

// manifest writes the end of an export anew, with links of ours. What it does not know is left out. Files of deleted
// resources name those of any type.
func (x *Exports) manifest(ctx context.Context, j job, text []byte) ([]byte, error) {
	m, err := readManifest(j, text)
	if err != nil {
		return nil, err
	}
	m.Request, m.RequiresAccessToken = x.At.URL(j.Request, ""), true
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

// judgeManifest leaves one file for each type of which policies leave a resource. The number of the FHIR server's files,
// their counts, empty files, and the files of deletions and errors would all reveal denied resources.
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

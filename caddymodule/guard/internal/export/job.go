package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

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
	// Holds is the type of a file's resources.
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

// ServeJob answers for the status of a job, or cancels it.
func (x *Exports) ServeJob(sealed string) (interaction.Interaction, *message.Answer, error) {
	j, i, err := x.unsealed(JobPath, sealed)
	if err != nil {
		return i, nil, err
	}
	a, err := x.Judge.Under(x.R.Context(), j.kickOff(), i, func() (*message.Answer, error) {
		if x.R.Method == http.MethodDelete {
			return x.cancelJob(x.R.Context(), j)
		}
		return x.jobStatus(x.R.Context(), j)
	})
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

// manifest writes the end of an export anew, with links of ours. What it does not know is left out. Files of deleted
// resources name those of any type.
func (x *Exports) manifest(ctx context.Context, j job, text []byte) ([]byte, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, message.Withheld(fmt.Errorf("%w: %w", errManifest, err))
	}
	for _, file := range m.Output {
		if !j.All && !(exportTypes{names: j.Types}).has(file.Type) {
			return nil, message.Forbidden(message.ErrScope, "The export holds types that no system scope allows to export.")
		}
	}
	if !j.All {
		m.Deleted = nil
	}
	m.Request, m.RequiresAccessToken = x.At.URL(j.Request, ""), true
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

// sealFile seals a file's address.
func (x *Exports) sealFile(ctx context.Context, j job, file *outputFile) (err error) {
	if j.Path, j.Query, err = below(j.Base, file.URL); err != nil {
		return err
	}
	j.Holds = file.Type
	file.URL, err = x.sealed(ctx, FilePath, j)
	return err
}

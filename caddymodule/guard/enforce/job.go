package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

const (
	// jobPath is where sealed links to jobs lead, below the FHIR base, and filePath where those to their files do.
	jobPath, filePath = "_job/", "_file/"
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
func (x *exports) sealed(ctx context.Context, path string, j job) (string, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return "", err
	}
	sealed, err := x.sealing.Seal(ctx, string(text), x.bindingOf(path))
	if err != nil {
		return "", fmt.Errorf("sealing a job's link: %w", err)
	}
	return x.at.url(path+sealed, ""), nil
}

// bindingOf keeps links apart by what they lead to.
func (x *exports) bindingOf(path string) string { return path + x.binding }

// unsealed is what a link to a job or file carries, with the kick-off that it came from. Another token's is not there.
func (x *exports) unsealed(path, sealed string) (j job, i interaction.Interaction, err error) {
	text, err := x.sealing.Unseal(x.r.Context(), sealed, x.bindingOf(path), jobLifetime)
	if err != nil {
		return j, i, notFound()
	}
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return j, i, fmt.Errorf("job's link: %w", err)
	}
	i, err = j.kickOff().interaction()
	return j, i, err
}

// kickOff is the call that began the job.
func (j job) kickOff() call {
	path, query, _ := strings.Cut(j.Request, "?")
	return get(path, query)
}

// serveJob answers for the status of a job, or cancels it.
func (x *exports) serveJob(sealed string) (interaction.Interaction, *answer, error) {
	j, i, err := x.unsealed(jobPath, sealed)
	if err != nil {
		return i, nil, err
	}
	a, err := x.judge.Under(x.r.Context(), j.kickOff(), i, func() (*answer, error) {
		if x.r.Method == http.MethodDelete {
			return x.cancelJob(x.r.Context(), j)
		}
		return x.jobStatus(x.r.Context(), j)
	})
	return i, a, err
}

// cancelJob cancels a job, or deletes what it made.
func (x *exports) cancelJob(ctx context.Context, j job) (*answer, error) {
	a, err := x.server.Ask(ctx, call{method: http.MethodDelete, path: j.Path, query: j.Query})
	if err != nil {
		return nil, err
	}
	if !a.succeeded() {
		return nil, failedOperation(a, nil)
	}
	return newAnswer(http.StatusAccepted, nil), nil
}

// jobStatus asks how far a job has come.
func (x *exports) jobStatus(ctx context.Context, j job) (*answer, error) {
	if x.r.Method != http.MethodGet && x.r.Method != http.MethodHead {
		return nil, notFound()
	}
	a, err := x.server.Ask(ctx, get(j.Path, j.Query))
	switch {
	case err != nil:
		return nil, err
	case a.status == http.StatusAccepted:
		return progress(a), nil
	case a.status != http.StatusOK:
		return nil, failedOperation(a, nil)
	}
	text, err := x.manifest(ctx, j, a.body)
	if err != nil {
		return nil, err
	}
	done := newAnswer(http.StatusOK, text)
	done.header.Set("Content-Type", "application/json")
	if expires := a.header.Get("Expires"); expires != "" {
		done.header.Set("Expires", expires)
	}
	return done, nil
}

// progress is the answer while a job is at work.
func progress(a *answer) *answer {
	out := newAnswer(http.StatusAccepted, nil)
	for _, name := range []string{"X-Progress", "Retry-After"} {
		if value := a.header.Get(name); value != "" {
			out.header.Set(name, value)
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
func (x *exports) manifest(ctx context.Context, j job, text []byte) ([]byte, error) {
	var m manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, withheld(fmt.Errorf("%w: %w", errManifest, err))
	}
	for _, file := range m.Output {
		if !j.All && !(exportTypes{names: j.Types}).has(file.Type) {
			return nil, forbidden(ErrScope, "The export holds types that no system scope allows to export.")
		}
	}
	if !j.All {
		m.Deleted = nil
	}
	m.Request, m.RequiresAccessToken = x.at.url(j.Request, ""), true
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
func (x *exports) sealFile(ctx context.Context, j job, file *outputFile) (err error) {
	if j.Path, j.Query, err = below(j.Base, file.URL); err != nil {
		return err
	}
	j.Holds = file.Type
	file.URL, err = x.sealed(ctx, filePath, j)
	return err
}

package sample

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	exportPath     = "_export/" // where jobs and their files are, below the base
	exportLifetime = time.Hour
	maxExports     = 20 // that are kept; the oldest of more ends
)

// exports are the jobs of $export, the oldest first.
type exports struct {
	mu   sync.Mutex
	jobs []*exportJob
}

// exportJob is an export (Bulk Data Access 2.0) of the resources as they were when it began. It says once that it is
// still at work, so that apps can try to wait for it.
type exportJob struct {
	id, request string
	began       time.Time
	asked       bool                // for its status
	files       map[string][][]byte // lines by type
}

func (e *exports) add(job *exportJob) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.jobs = append(e.jobs, job)
	e.jobs = slices.Clone(e.jobs[max(0, len(e.jobs)-maxExports):])
}

// serve answers for a job, or one of its files.
func (e *exports) serve(method, base, path string) (reply, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id, file, isFile := strings.Cut(path, "/")
	at := slices.IndexFunc(e.jobs, func(j *exportJob) bool { return j.id == id && time.Since(j.began) < exportLifetime })
	isRead := method == http.MethodGet || method == http.MethodHead
	switch {
	case at < 0:
		return reply{}, failure{http.StatusNotFound, "not-found", "There is no such export."}
	case isFile && isRead:
		return e.jobs[at].file(file)
	case isRead:
		return e.jobs[at].status(base)
	case method == http.MethodDelete && !isFile:
		e.jobs = slices.Delete(e.jobs, at, at+1)
		return reply{status: http.StatusAccepted}, nil
	}
	return reply{}, failure{http.StatusMethodNotAllowed, "not-supported", "An export can be read and deleted."}
}

// status is the manifest, from the second time on.
func (j *exportJob) status(base string) (reply, error) {
	if !j.asked {
		j.asked = true
		return reply{status: http.StatusAccepted, header: http.Header{"Retry-After": {"1"}, "X-Progress": {"at work"}}}, nil
	}
	output := []object{}
	for _, name := range slices.Sorted(maps.Keys(j.files)) {
		output = append(output, object{"type": name, "url": base + "/" + exportPath + j.id + "/" + name + ".ndjson", "count": len(j.files[name])})
	}
	text, err := json.Marshal(object{
		"transactionTime": j.began, "request": j.request, "requiresAccessToken": true, "output": output, "error": []object{},
	})
	answer := answerWith(http.StatusOK, text)
	answer.header = http.Header{"Content-Type": {"application/json"}, "Expires": {j.began.Add(exportLifetime).Format(http.TimeFormat)}}
	return answer, err
}

// file is the resources of a type, one a line.
func (j *exportJob) file(name string) (reply, error) {
	name, ok := strings.CutSuffix(name, ".ndjson")
	if !ok || j.files[name] == nil {
		return reply{}, failure{http.StatusNotFound, "not-found", "There is no such file."}
	}
	var lines bytes.Buffer
	for _, text := range j.files[name] {
		if err := json.Compact(&lines, text); err != nil {
			return reply{}, err
		}
		lines.WriteByte('\n')
	}
	return reply{http.StatusOK, http.Header{"Content-Type": {"application/fhir+ndjson"}}, lines.Bytes()}, nil
}

package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Kind is what a client asked for.
type Kind string

// The kinds of operations. Of a session: SignIn and Authorize; the others are of a grant.
const (
	SignIn    Kind = "sign-in"   // made a session
	Authorize Kind = "authorize" // asked for a code in a session; refused: the sign-in page
	Exchange  Kind = "exchange"  // of a code
	Refresh   Kind = "refresh"   // by a refresh token
	Revoke    Kind = "revoke"    // of a refresh token (RFC 7009)
	Access    Kind = "access"    // by an access token: introspection, or a request to the FHIR API
)

// Result is what a client was told.
type Result string

// The results of operations.
const (
	OK      Result = "ok"
	Refused Result = "refused"
	Unknown Result = "unknown" // no answer, or 5xx
	Amiss   Result = "amiss"   // what no gateway should answer
)

// Operation is what a client asked, and what it was told.
type Operation struct {
	Client  int           `json:"client"`
	Kind    Kind          `json:"kind"`
	Subject string        `json:"subject"`         // the grant or session
	Token   string        `json:"token,omitempty"` // the refresh token that was used
	Next    string        `json:"next,omitempty"`  // the refresh token that was given
	Result  Result        `json:"result"`
	Told    string        `json:"told,omitempty"` // the answer, for people
	Call    time.Duration `json:"call"`           // since the record began
	Return  time.Duration `json:"return"`
}

// Record is what several clients were told. It is safe for concurrent use.
type Record struct {
	begin      time.Time
	mu         sync.Mutex
	operations []Operation
}

// NewRecord begins a record.
func NewRecord() *Record { return &Record{begin: time.Now()} }

// Now is the time since the record began.
func (r *Record) Now() time.Duration { return time.Since(r.begin) }

// Add adds an operation that has returned.
func (r *Record) Add(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, o)
}

// Operations are all there are.
func (r *Record) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Operation(nil), r.operations...)
}

// Write writes operations, each as a line of JSON.
func Write(w io.Writer, operations []Operation) error {
	buffer := bufio.NewWriter(w)
	encoder := json.NewEncoder(buffer)
	for _, o := range operations {
		if err := encoder.Encode(o); err != nil {
			return err
		}
	}
	return buffer.Flush()
}

// Read reads what [Write] has written.
func Read(r io.Reader) (operations []Operation, err error) {
	decoder := json.NewDecoder(r)
	for {
		var o Operation
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return operations, nil
		} else if err != nil {
			return nil, err
		}
		operations = append(operations, o)
	}
}

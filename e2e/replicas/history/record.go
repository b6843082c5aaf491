package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Kind is the kind of a request.
type Kind string

// Kinds of operations. SignIn and Authorize belong to a session, the others to a grant.
const (
	SignIn    Kind = "sign-in"   // creates a session
	Authorize Kind = "authorize" // requests a code in a session; refused means the sign-in page
	Exchange  Kind = "exchange"  // redeems a code
	Refresh   Kind = "refresh"   // uses a refresh token
	Revoke    Kind = "revoke"    // revokes a refresh token (RFC 7009)
	Access    Kind = "access"    // uses an access token: introspection, or a request to the FHIR API
)

// Result is the result of a request.
type Result string

// Results of operations.
const (
	OK      Result = "ok"
	Refused Result = "refused"
	Unknown Result = "unknown" // no response, or 5xx
	Amiss   Result = "amiss"   // a response that no gateway should send
)

// Operation is a client's request and its response.
type Operation struct {
	Client  int           `json:"client"`
	Kind    Kind          `json:"kind"`
	Subject string        `json:"subject"`         // grant or session
	Token   string        `json:"token,omitempty"` // refresh token in the request
	Next    string        `json:"next,omitempty"`  // refresh token in the response
	Result  Result        `json:"result"`
	Told    string        `json:"told,omitempty"` // response as text
	Call    time.Duration `json:"call"`           // since the record began
	Return  time.Duration `json:"return"`
}

// Record is the operations of several clients. It is safe for concurrent use.
type Record struct {
	begin      time.Time
	mu         sync.Mutex
	operations []Operation
}

// NewRecord starts a record.
func NewRecord() *Record { return &Record{begin: time.Now()} }

// Now returns the time since the record began.
func (r *Record) Now() time.Duration { return time.Since(r.begin) }

// Add adds a completed operation.
func (r *Record) Add(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, o)
}

// Operations returns all operations.
func (r *Record) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Operation(nil), r.operations...)
}

// Write writes operations as lines of JSON.
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

// Read reads the output of [Write].
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

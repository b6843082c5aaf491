package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"
)

// Kind is the kind of an operation.
type Kind string

// Kinds of operations. SignIn and Authorize operate on a session, the others on a grant.
const (
	SignIn    Kind = "sign-in"   // create a session
	Authorize Kind = "authorize" // request a code in a session; refused means a redirect to the sign-in page
	Exchange  Kind = "exchange"  // redeem a code
	Refresh   Kind = "refresh"   // redeem a refresh token
	Revoke    Kind = "revoke"    // revoke a refresh token (RFC 7009)
	Access    Kind = "access"    // use an access token: introspection, or a request to the FHIR API
)

// Result is the result of an operation.
type Result string

// Results of operations.
const (
	OK      Result = "ok"
	Refused Result = "refused"
	Unknown Result = "unknown" // no response, or a 5xx status
	Amiss   Result = "amiss"   // a response that a gateway must never send
)

// Operation is a client's request and its response.
type Operation struct {
	Client       int           `json:"client"`
	Kind         Kind          `json:"kind"`
	Subject      string        `json:"subject"`         // name of the grant or session
	Token        string        `json:"token,omitempty"` // refresh token in the request
	Next         string        `json:"next,omitempty"`  // refresh token in the response
	Result       Result        `json:"result"`
	ResponseText string        `json:"told,omitempty"` // response as text, for reports
	Call         time.Duration `json:"call"`           // time since the start of the record
	Return       time.Duration `json:"return"`
}

// Record contains the operations of several clients. It is safe for concurrent use.
type Record struct {
	begin      time.Time
	mu         sync.Mutex
	operations []Operation
}

// NewRecord returns an empty record that starts now.
func NewRecord() *Record { return &Record{begin: time.Now()} }

// Now returns the time since the start of the record.
func (r *Record) Now() time.Duration { return time.Since(r.begin) }

// Add adds a completed operation.
func (r *Record) Add(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, o)
}

// Operations returns all operations added so far.
func (r *Record) Operations() []Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Operation(nil), r.operations...)
}

// Write writes the operations, one per line, as JSON.
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

// Read reads operations written by [Write].
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

package deprovisioning

import (
	"fmt"
	"net/http"
)

// scimError is a refusal (RFC 7644 §3.12).
type scimError struct {
	status       int
	kind, detail string
	err          error
}

func (e *scimError) Error() string {
	return fmt.Sprintf("%d %s: %s (%v)", e.status, e.kind, e.detail, e.err)
}

func invalidValue(detail string) error {
	return &scimError{status: http.StatusBadRequest, kind: "invalidValue", detail: detail}
}

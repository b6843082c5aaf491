package cache

import "strconv"

// isShared reports whether a result is a failure for everybody with the key.
func (r *result) isShared(key Key) bool {
	if !r.failed() {
		return false
	}
	header := r.answer.Header
	private := parseDirectives(header["Cache-Control"]).has("private") && !key.personal
	return !private && len(header["Set-Cookie"]) == 0 && varyIsKept(header["Vary"], key)
}

// result is what the producer made.
type result struct {
	answer    *Answer
	entry     *entry // nil if the answer may not be kept
	stored    bool
	validated bool // the producer said that the old answer is still good
}

// status returns parameters of Cache-Status.
func (r *result) status() (status string) {
	if r.validated {
		status = "; fwd-status=304"
	} else {
		status = "; fwd-status=" + strconv.Itoa(r.answer.Status)
	}
	if r.stored {
		status += "; stored"
	}
	return status
}

// failed reports whether the producer has no answer for now.
func (r *result) failed() bool { return r.entry == nil && isFailure(r.answer.Status) }

package session

import "errors"

// ErrUnreadable says that the record of a session is malformed. Such a session signs nobody in,
// but what clients got in it lasts until it is ended.
var ErrUnreadable = errors.New("the record of the session cannot be read")

// IsUnreadable reports whether the record is malformed; see [ErrUnreadable].
func (s *Session) IsUnreadable() bool { return s.unreadable != nil }

// unreadable stands for a session whose record cannot be read. The user is empty if unknown.
func unreadable(sid, user string, err error) *Session {
	return &Session{SID: sid, User: user, unreadable: err}
}

// unreadableError is [ErrUnreadable] of one session.
type unreadableError struct {
	sid string
	why error
}

// Error names the session, so that an operator can end it.
func (e *unreadableError) Error() string {
	return "session " + e.sid + ": " + ErrUnreadable.Error() + ": " + e.why.Error()
}

// Unwrap returns [ErrUnreadable].
func (*unreadableError) Unwrap() error { return ErrUnreadable }

// unreadableSID returns of which session an error is [ErrUnreadable]; "" if of none.
func unreadableSID(err error) string {
	if e, ok := errors.AsType[*unreadableError](err); ok {
		return e.sid
	}
	return ""
}

package front

// Purge removes the responses made of the value set with this URL, and those with concepts of this code system; all of
// them if both are empty. It returns their number.
func (s *State) Purge(url, system string) (n int) {
	s.forgetSaved()
	for _, canonical := range []string{url, system} {
		if canonical != "" || url+system == "" {
			s.backend.forget(canonical)
			s.wholes.Forget(canonical)
		}
	}
	switch {
	case s.cache == nil:
		return 0
	case url+system == "":
		return s.cache.Purge()
	}
	if url != "" {
		n += s.cache.InvalidateTag(url)
	}
	if system != "" {
		s.wholes.Forget("") // it is not known which have its concepts
		n += s.cache.InvalidateSystem(system)
	}
	return n
}

// Written removes the responses that depend on definitions that were written, named by canonical or reference. Unless it is
// sure that these are all, it removes all responses.
func (s *State) Written(names []string, sure bool) {
	s.forgetSaved()
	s.wholes.Forget("") // it is not known what they were made of
	for _, name := range names {
		if name == "" {
			continue
		}
		before, known := s.backend.forget(name)
		sure = sure && known
		s.invalidate(name)
		s.invalidate(before)
	}
	if !sure {
		s.Purge("", "")
	}
}

// changed removes what depends on a definition that changed behind the next handler, unseen here.
func (s *State) changed(url string) {
	if url == "" && s.cache != nil {
		s.cache.Purge()
	}
	s.invalidate(url)
}

func (s *State) invalidate(canonical string) {
	if canonical != "" && s.cache != nil {
		s.cache.InvalidateSystem(canonical)
	}
}

// While people type what they search by, #results is what the form's own page has there.
// The focus stays where it is. Without an answer the list is empty, and the button says why.
(() => {
	const form = document.querySelector('form[role=search]');
	const results = document.getElementById('results');
	const pause = 250; // ms, shorter than between two words
	let timer, request = new AbortController();

	const forget = () => {
		clearTimeout(timer);
		request.abort();
	};
	const search = async () => {
		const { signal } = request = new AbortController();
		const page = document.createElement('template');
		try {
			const address = form.action + '?' + new URLSearchParams(new FormData(form));
			const response = await fetch(address, { signal, redirect: 'error' });
			page.innerHTML = response.ok ? await response.text() : '';
		} catch {
			// gone, or no longer wanted
		}
		if (!signal.aborted) {
			results.replaceChildren(...page.content.querySelector('#results')?.childNodes ?? []);
		}
	};
	form.addEventListener('input', () => {
		forget();
		timer = setTimeout(search, pause);
	});
	form.addEventListener('submit', forget);
	results.addEventListener('focusin', forget); // the list does not change under somebody's hands
})();

// Answers the challenge of the part "passkey" of a form, or of the form "passkey", which is hidden where this cannot run.
(() => {
	const part = document.getElementById('passkey');
	if (!part || !window.PublicKeyCredential) return;
	const form = part.closest('form');
	const wrong = part.querySelector('[role=alert]');
	const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
	const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, '-').replace(/\//g, '_').replace(/=/g, '');

	const publicKey = JSON.parse(part.dataset.options);
	publicKey.challenge = bytes(publicKey.challenge);
	if (publicKey.user) publicKey.user.id = bytes(publicKey.user.id);
	for (const list of [publicKey.allowCredentials, publicKey.excludeCredentials]) {
		for (const credential of list || []) credential.id = bytes(credential.id);
	}

	const send = (credential) => {
		const response = {};
		for (const name of ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle']) {
			if (credential.response[name]) response[name] = text(credential.response[name]);
		}
		if (credential.response.getTransports) response.transports = credential.response.getTransports();
		form.elements.assertion.value = JSON.stringify({ id: credential.id, rawId: text(credential.rawId), type: credential.type, response });
		form.submit();
	};

	// What is offered beside the user name waits until the button is pressed, or for ever.
	let waiting = new AbortController();
	const offer = async () => {
		if (!part.hasAttribute('data-offered') || !PublicKeyCredential.isConditionalMediationAvailable) return;
		if (!await PublicKeyCredential.isConditionalMediationAvailable()) return;
		send(await navigator.credentials.get({ publicKey, mediation: 'conditional', signal: waiting.signal }));
	};

	const answer = async (event) => {
		event.preventDefault();
		wrong.hidden = true;
		waiting.abort();
		try {
			const ask = publicKey.user ? 'create' : 'get';
			send(await navigator.credentials[ask]({ publicKey }));
		} catch {
			wrong.hidden = false;
		}
	};
	if (part === form) form.addEventListener('submit', answer);
	else part.querySelector('button').addEventListener('click', answer);
	part.hidden = false;
	offer().catch(() => {});
})();

//! The C side: the functions of libflux and job-manager that the plugin calls, and the functions of the plugin that
//! Flux calls. This file has all `unsafe` of the workspace. The plugin links no library: the broker provides these
//! symbols when it loads the plugin (flux/plugin.h, flux/jobtap.h, flux/core.h).
//!
//! Three rules make the blocks below sound. Flux calls the plugin from one thread, job-manager's. A pointer that Flux
//! hands to a callback is valid until the callback returns; a `flux_plugin_t` and its services are valid until Flux
//! unloads the plugin. A format of jansson matches the pointers behind it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};

use crate::plugin;
use crate::references::What;

#[repr(C)]
struct FluxPlugin([u8; 0]);
#[repr(C)]
struct FluxArgs([u8; 0]);
#[repr(C)]
struct Flux([u8; 0]);
#[repr(C)]
struct FluxMsg([u8; 0]);
#[repr(C)]
struct FluxMsgHandler([u8; 0]);

type OnCall = unsafe extern "C" fn(*mut FluxPlugin, *const c_char, *mut FluxArgs, *mut c_void) -> c_int;
type OnRequest = unsafe extern "C" fn(*mut Flux, *mut FluxMsgHandler, *const FluxMsg, *mut c_void);

/// libflux's `struct flux_plugin_handler`.
#[repr(C)]
struct Handler {
    topic: *const c_char,
    callback: Option<OnCall>,
    data: *mut c_void,
}

unsafe extern "C" {
    fn flux_plugin_register(p: *mut FluxPlugin, name: *const c_char, table: *const Handler) -> c_int;
    fn flux_plugin_arg_get(args: *mut FluxArgs, flags: c_int, json: *mut *mut c_char) -> c_int;
    fn flux_plugin_arg_unpack(args: *mut FluxArgs, flags: c_int, format: *const c_char, ...) -> c_int;
    fn flux_jobtap_get_flux(p: *mut FluxPlugin) -> *mut Flux;
    fn flux_jobtap_service_register(
        p: *mut FluxPlugin,
        method: *const c_char,
        callback: OnRequest,
        arg: *mut c_void,
    ) -> c_int;
    fn flux_jobtap_reject_job(p: *mut FluxPlugin, args: *mut FluxArgs, format: *const c_char, ...) -> c_int;
    fn flux_jobtap_raise_exception(
        p: *mut FluxPlugin,
        id: u64,
        kind: *const c_char,
        severity: c_int,
        format: *const c_char,
        ...
    ) -> c_int;
    fn flux_jobtap_prolog_start(p: *mut FluxPlugin, description: *const c_char) -> c_int;
    fn flux_jobtap_epilog_start(p: *mut FluxPlugin, description: *const c_char) -> c_int;
    fn flux_jobtap_prolog_finish(p: *mut FluxPlugin, id: u64, description: *const c_char, status: c_int) -> c_int;
    fn flux_jobtap_epilog_finish(p: *mut FluxPlugin, id: u64, description: *const c_char, status: c_int) -> c_int;
    fn flux_request_unpack(msg: *const FluxMsg, topic: *mut *const c_char, format: *const c_char, ...) -> c_int;
    fn flux_respond(h: *mut Flux, msg: *const FluxMsg, json: *const c_char) -> c_int;
    fn flux_respond_error(h: *mut Flux, msg: *const FluxMsg, errnum: c_int, text: *const c_char) -> c_int;
    fn flux_log(h: *mut Flux, level: c_int, format: *const c_char, ...);
    fn free(memory: *mut c_void);
}

/// The plugin's name in Flux; its services are named `job-manager.perilog-hold.*` (README.md).
const NAME: &CStr = c"perilog-hold";
/// Text that describes perilog's references in a job's eventlog.
const DESCRIPTION: &CStr = c"perilog";
/// libflux's `FLUX_PLUGIN_ARG_IN`: the arguments that Flux passes to a callback.
const IN: c_int = 0;
/// libflux's `FLUX_JOBTAP_CURRENT_JOB`: the job of the current callback.
const CURRENT_JOB: u64 = u64::MAX;

/// An error number of errno(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const NO_SUCH_ENTRY: Self = Self(2);
    pub(crate) const PROTOCOL: Self = Self(71);
    pub(crate) const ALREADY: Self = Self(114);

    /// Returns an error with the value of `errno` if the return code of a C call is negative.
    fn result(code: c_int) -> Result<(), Self> {
        if code >= 0 { Ok(()) } else { Err(Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))) }
    }
}

/// Severities of log messages, with the numbers of syslog(3).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level {
    Critical = 2,
    Error = 3,
}

/// Makes a C string; a NUL inside becomes a space.
fn c(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Flux's handle of this plugin, for calls into Flux.
pub(crate) struct Plugin(*mut FluxPlugin);

impl Plugin {
    pub(crate) fn log(&self, level: Level, text: &str) {
        // SAFETY: a loaded plugin.
        let flux = unsafe { flux_jobtap_get_flux(self.0) };
        if !flux.is_null() {
            // SAFETY: job-manager's handle; `%s` takes one C string.
            unsafe { flux_log(flux, level as c_int, c"%s".as_ptr(), c(text).as_ptr()) };
        }
    }

    /// Takes a prolog or epilog reference on the job of the current callback.
    ///
    /// # Errors
    /// [`Errno`]: Flux refuses the reference.
    pub(crate) fn take(&self, what: What) -> Result<(), Errno> {
        Errno::result(match what {
            // SAFETY: a loaded plugin, and a C string.
            What::Prolog => unsafe { flux_jobtap_prolog_start(self.0, DESCRIPTION.as_ptr()) },
            // SAFETY: as above.
            What::Epilog => unsafe { flux_jobtap_epilog_start(self.0, DESCRIPTION.as_ptr()) },
        })
    }

    pub(crate) fn finish(&self, what: What, id: u64, status: c_int) -> Result<(), Errno> {
        Errno::result(match what {
            // SAFETY: a loaded plugin, and a C string.
            What::Prolog => unsafe { flux_jobtap_prolog_finish(self.0, id, DESCRIPTION.as_ptr(), status) },
            // SAFETY: as above.
            What::Epilog => unsafe { flux_jobtap_epilog_finish(self.0, id, DESCRIPTION.as_ptr(), status) },
        })
    }

    /// Raises a fatal exception on the job of the current callback.
    pub(crate) fn fail_job(&self, note: &str) {
        let (kind, format, note) = (DESCRIPTION.as_ptr(), c"%s".as_ptr(), c(note));
        // SAFETY: a loaded plugin; `%s` takes one C string.
        let code = unsafe { flux_jobtap_raise_exception(self.0, CURRENT_JOB, kind, 0, format, note.as_ptr()) };
        if let Err(errno) = Errno::result(code) {
            self.log(Level::Critical, &format!("perilog-hold: a job starts without its prolog: errno {}", errno.0));
        }
    }
}

/// The arguments that Flux passes to a callback, about a job or the configuration.
pub(crate) struct Call(*mut FluxArgs);

impl Call {
    pub(crate) fn id(&self) -> Option<u64> {
        let mut id = 0i64;
        // SAFETY: `I` writes a json_int_t, 64 bits.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, c"{s:I}".as_ptr(), c"id".as_ptr(), &raw mut id) };
        (code == 0).then(|| id.cast_unsigned())
    }

    pub(crate) fn state(&self) -> Option<c_int> {
        let mut state: c_int = 0;
        // SAFETY: `i` writes an int.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, c"{s:i}".as_ptr(), c"state".as_ptr(), &raw mut state) };
        (code == 0).then_some(state)
    }

    /// Returns `true` if the callback's job has resources (R).
    pub(crate) fn has_resources(&self) -> bool {
        let mut found: *mut c_void = null_mut();
        // SAFETY: `o` writes a borrowed pointer.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, c"{s:o}".as_ptr(), c"R".as_ptr(), &raw mut found) };
        code == 0
    }

    /// Returns `true` if the context of this callback's event has `"bypass":true`.
    pub(crate) fn is_bypass(&self) -> bool {
        let mut bypass: c_int = 0;
        let format = c"{s:{s:{s:b}}}".as_ptr();
        let (entry, context, name) = (c"entry".as_ptr(), c"context".as_ptr(), c"bypass".as_ptr());
        // SAFETY: `b` writes an int.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, format, entry, context, name, &raw mut bypass) };
        code == 0 && bypass != 0
    }

    /// Returns the arguments as JSON if the jobspec has terms for perilog. `None`: it has none, and the function
    /// encodes nothing; or Flux cannot encode the arguments.
    pub(crate) fn job_with_terms(&self) -> Option<String> {
        let mut found: *mut c_void = null_mut();
        let format = c"{s:{s:{s:{s:o}}}}".as_ptr();
        let (jobspec, attributes) = (c"jobspec".as_ptr(), c"attributes".as_ptr());
        let (system, perilog) = (c"system".as_ptr(), c"perilog".as_ptr());
        let to = &raw mut found;
        // SAFETY: `o` writes a borrowed pointer.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, format, jobspec, attributes, system, perilog, to) };
        if code == 0 { self.json() } else { None }
    }

    /// Returns the callback's arguments as JSON: Flux's configuration. `None`: the configuration has no table
    /// `[perilog]`, or Flux cannot encode it.
    pub(crate) fn configuration(&self) -> Option<String> {
        let mut found: *mut c_void = null_mut();
        let format = c"{s:{s:o}}".as_ptr();
        let (conf, perilog, to) = (c"conf".as_ptr(), c"perilog".as_ptr(), &raw mut found);
        // SAFETY: `o` writes a borrowed pointer.
        let code = unsafe { flux_plugin_arg_unpack(self.0, IN, format, conf, perilog, to) };
        if code == 0 { self.json() } else { None }
    }

    fn json(&self) -> Option<String> {
        let mut json: *mut c_char = null_mut();
        // SAFETY: the function writes a pointer that this function has to free.
        let code = unsafe { flux_plugin_arg_get(self.0, IN, &raw mut json) };
        if code < 0 || json.is_null() {
            return None;
        }
        // SAFETY: jansson's text ends with NUL.
        let text = unsafe { CStr::from_ptr(json) }.to_str().ok().map(str::to_owned);
        // SAFETY: jansson allocates with malloc(3).
        unsafe { free(json.cast()) };
        text
    }
}

/// A request to a service of the plugin. `answer` and `refuse` consume the request, so the plugin answers only once.
pub(crate) struct Request {
    flux: *mut Flux,
    message: *const FluxMsg,
}

impl Request {
    /// Reads the payload of a request `finish`: the job's id, the reference's name and the wait status; `None`:
    /// malformed.
    pub(crate) fn read_finish(&self) -> Option<(u64, Vec<u8>, c_int)> {
        let (mut id, mut what, mut status): (i64, *const c_char, c_int) = (0, null(), 0);
        let format = c"{s:I s:s s:i}".as_ptr();
        let names = (c"id".as_ptr(), c"what".as_ptr(), c"status".as_ptr());
        let to = (&raw mut id, &raw mut what, &raw mut status);
        // SAFETY: `I` writes 64 bits, `s` a pointer into the message, `i` an int.
        let code = unsafe {
            flux_request_unpack(self.message, null_mut(), format, names.0, to.0, names.1, to.1, names.2, to.2)
        };
        if code < 0 || what.is_null() {
            return None;
        }
        // SAFETY: jansson's text ends with NUL and lives as long as the message.
        let what = unsafe { CStr::from_ptr(what) };
        Some((id.cast_unsigned(), what.to_bytes().to_owned(), status))
    }

    /// Sends the answer; `None`: an answer without a payload. Ignores a failure to send.
    pub(crate) fn answer(self, json: Option<&str>) {
        let json = json.map(c);
        let json = json.as_ref().map_or(null(), |json| json.as_ptr());
        // SAFETY: a request without an answer so far, and a C string or NULL.
        unsafe { flux_respond(self.flux, self.message, json) };
    }

    pub(crate) fn refuse(self, errno: Errno, text: &CStr) {
        let text = if text.is_empty() { null() } else { text.as_ptr() };
        // SAFETY: a request without an answer so far, and a C string or NULL.
        unsafe { flux_respond_error(self.flux, self.message, errno.0, text) };
    }
}

/// Runs the body of a callback. Returns `None` after a panic, so that rank 0 survives.
fn guarded<T>(run: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(done) => Some(done),
        Err(payload) => {
            // A payload whose drop panics would still end the broker.
            std::mem::forget(payload);
            None
        }
    }
}

unsafe extern "C" fn on_call(
    p: *mut FluxPlugin,
    topic: *const c_char,
    args: *mut FluxArgs,
    _data: *mut c_void,
) -> c_int {
    let (plugin, call) = (Plugin(p), Call(args));
    // SAFETY: Flux names the callback with a C string.
    let topic = unsafe { CStr::from_ptr(topic) };
    let done = guarded(|| plugin::called(&plugin, topic.to_bytes(), &call));
    let done = done.unwrap_or_else(|| guarded(|| plugin::panicked(&plugin, topic.to_bytes())).unwrap_or(Ok(())));
    match done {
        Ok(()) => 0,
        // SAFETY: the answer of this callback may have a text; `%s` takes one C string.
        Err(text) => unsafe { flux_jobtap_reject_job(p, args, c"%s".as_ptr(), c(&text).as_ptr()) },
    }
}

unsafe extern "C" fn on_finish(flux: *mut Flux, _: *mut FluxMsgHandler, message: *const FluxMsg, p: *mut c_void) {
    guarded(|| plugin::finish(&Plugin(p.cast()), Request { flux, message }));
}

unsafe extern "C" fn on_list(flux: *mut Flux, _: *mut FluxMsgHandler, message: *const FluxMsg, _: *mut c_void) {
    guarded(|| plugin::list(Request { flux, message }));
}

struct Table([Handler; 7]);

// SAFETY: the pointers refer to constants.
unsafe impl Sync for Table {}

const fn on(topic: &'static CStr) -> Handler {
    Handler { topic: topic.as_ptr(), callback: Some(on_call), data: null_mut() }
}

static TABLE: Table = Table([
    on(c"conf.update"),
    on(c"job.validate"),
    on(c"job.new"),
    on(c"job.state.run"),
    on(c"job.state.cleanup"),
    on(c"job.destroy"),
    Handler { topic: null(), callback: None, data: null_mut() },
]);

/// Registers the plugin's callbacks; Flux calls this function when it loads the plugin.
///
/// # Safety
/// `p` is the plugin that Flux loads.
#[unsafe(no_mangle)]
unsafe extern "C" fn flux_plugin_init(p: *mut FluxPlugin) -> c_int {
    guarded(plugin::begin);
    // SAFETY: Flux reads the table and copies it.
    let mut code = unsafe { flux_plugin_register(p, NAME.as_ptr(), TABLE.0.as_ptr()) };
    for (method, callback) in [(c"finish", on_finish as OnRequest), (c"list", on_list)] {
        if code >= 0 {
            // SAFETY: the services end with the plugin, so `p` outlives them.
            code = unsafe { flux_jobtap_service_register(p, method.as_ptr(), callback, p.cast()) };
        }
    }
    code.min(0)
}
